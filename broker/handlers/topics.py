"""TEMPORARY scaffold by the lead; the admin engineer's file replaces it whole."""
from protocol import messages
def on_create_topics(broker, request, context):
    R=messages.message_class("admin","CreateTopicsResponse"); T=R.CreatableTopicResult
    ts=[]
    for t in request.topics:
        x=broker.create_topic(t.name,t.num_partitions,{c.name:c.value for c in t.configs},now_ms=context.now_ms)
        ts.append(T(name=t.name,topic_id=x.topic_id,error_code=0,error_message=None,num_partitions=t.num_partitions,replication_factor=1,configs=[],topic_config_error_code=0))
    return R(throttle_time_ms=0,topics=ts)
