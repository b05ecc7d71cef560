"""TEMPORARY scaffold by the lead; the admin engineer's file replaces it whole."""
from protocol import messages
def on_metadata(broker, request, context):
    R=messages.message_class("metadata","MetadataResponse"); T=R.MetadataResponseTopic; P=T.MetadataResponsePartition
    h,p=broker.advertised(context)
    names=list(broker.metadata.topics) if request.topics is None else [t.name for t in request.topics]
    ts=[]
    for n in names:
        t=broker.metadata.topic(n)
        if t is None: t=broker.create_topic(n,1,{},now_ms=context.now_ms)
        ts.append(T(error_code=0,name=n,topic_id=t.topic_id,is_internal=False,partitions=[P(error_code=0,partition_index=i,leader_id=1,leader_epoch=0,replica_nodes=[1],isr_nodes=[1],offline_replicas=[]) for i in range(t.partition_count)]))
    return R(throttle_time_ms=0,brokers=[R.MetadataResponseBroker(node_id=1,host=h,port=p,rack=None)],cluster_id="x",controller_id=1,topics=ts)
