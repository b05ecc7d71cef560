// A member of a share group, until it is killed: share_worker HOST:PORT GROUP TOPIC DIARY SEED.
//
// It accepts most records, releases, renews and rejects others. Before it acknowledges, it writes
// to its diary which records it is about to finish (["attempt", [[partition, value], …]]), and
// after the answer which ones are finished (["done", [value, …]]); tests/tools/torture/sharing.py reads
// that.
package main

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"math/rand"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

type worker struct {
	client *kgo.Client
	diary  *os.File

	mutex    sync.Mutex
	answered map[int32]bool // by partition: whether all acknowledgements since `begin` succeeded
}

func (w *worker) onAcknowledged(_ *kgo.Client, results kgo.ShareAckResults) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, one := range results {
		before, known := w.answered[one.Partition]
		w.answered[one.Partition] = one.Err == nil && (before || !known)
	}
}

// acknowledged sends what was acknowledged. It gives the values of the records whose partitions
// answered without an error.
func (w *worker) acknowledged(records []*kgo.Record) []any {
	within, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	failed := w.client.FlushAcks(within)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	stored := []any{}
	for _, record := range records {
		if failed == nil && w.answered[record.Partition] {
			stored = append(stored, string(record.Value))
		}
	}
	return stored
}

func (w *worker) begin() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.answered = map[int32]bool{}
}

func (w *worker) say(kind string, parts []any) {
	line, err := json.Marshal([]any{kind, parts})
	if err != nil {
		panic(err)
	}
	if _, err := w.diary.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

func drawn(random *rand.Rand) kgo.AckStatus {
	switch number := random.Intn(20); {
	case number < 2:
		return kgo.AckRelease
	case number < 4:
		return kgo.AckRenew
	case number < 5:
		return kgo.AckReject
	default:
		return kgo.AckAccept
	}
}

func (w *worker) round(random *rand.Rand) {
	within, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	var finished, renewed []*kgo.Record
	kinds := map[*kgo.Record]kgo.AckStatus{}
	attempt := []any{}
	for _, record := range w.client.PollFetches(within).Records() {
		kind := drawn(random)
		kinds[record] = kind
		if kind == kgo.AckRenew {
			renewed = append(renewed, record)
		} else if kind != kgo.AckRelease {
			finished = append(finished, record)
		}
		if kind != kgo.AckRelease { // a renewed record is accepted below
			attempt = append(attempt, []any{record.Partition, string(record.Value)})
		}
	}
	w.say("attempt", attempt) // the client may send an acknowledgement at once
	w.begin()
	for record, kind := range kinds {
		record.Ack(kind)
	}
	all := append(append([]*kgo.Record{}, finished...), renewed...)
	isStored := map[any]bool{}
	for _, value := range w.acknowledged(all) {
		isStored[value] = true
	}
	w.say("done", valuesIn(finished, isStored))
	w.say("renewed", valuesIn(renewed, isStored))
	w.begin()
	for _, record := range renewed {
		record.Ack(kgo.AckAccept)
	}
	w.say("done", w.acknowledged(renewed))
}

func valuesIn(records []*kgo.Record, isStored map[any]bool) []any {
	values := []any{}
	for _, record := range records {
		if isStored[string(record.Value)] {
			values = append(values, string(record.Value))
		}
	}
	return values
}

func main() {
	seed := fnv.New64()
	seed.Write([]byte(os.Args[5]))
	diary, err := os.OpenFile(os.Args[4], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	w := &worker{diary: diary, answered: map[int32]bool{}}
	w.client, err = kgo.NewClient(
		kgo.SeedBrokers(os.Args[1]),
		kgo.ShareGroup(os.Args[2]),
		kgo.ConsumeTopics(os.Args[3]),
		kgo.ShareAckCallback(w.onAcknowledged),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.FetchMaxWait(500*time.Millisecond),
	)
	if err != nil {
		panic(err)
	}
	random := rand.New(rand.NewSource(int64(seed.Sum64())))
	for {
		w.round(random)
	}
}
