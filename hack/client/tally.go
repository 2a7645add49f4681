package main

import (
	"math"
	"slices"
	"sync"
	"time"
)

// quantiles are milliseconds.
type quantiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// A result is what is printed. Latency counts from the sending of a call; sinceMoment from when it
// was due, so it has the client's own lateness too. Both are of the calls that did not fail.
type result struct {
	Calls       int            `json:"calls"`
	Seconds     float64        `json:"seconds"`
	PerSecond   float64        `json:"perSecond"`
	Latency     quantiles      `json:"latency"`
	SinceMoment quantiles      `json:"sinceMoment"`
	Errors      map[string]int `json:"errors"`
	Notes       map[string]int `json:"notes"`
	Dials       int64          `json:"dials"`
}

// A tally collects calls from many goroutines.
type tally struct {
	mutex       sync.Mutex
	started     time.Time
	latency     []float64
	sinceMoment []float64
	errors      map[string]int
	notes       map[string]int
}

func newTally() *tally {
	t := &tally{}
	t.reset()
	return t
}

func (t *tally) reset() {
	t.started = time.Now()
	t.latency, t.sinceMoment = nil, nil
	t.errors, t.notes = map[string]int{}, map[string]int{}
}

// add enters an answered call; the notes say what the answer held.
func (t *tally) add(moment, sent, answered time.Time, notes []string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.latency = append(t.latency, milliseconds(answered.Sub(sent)))
	t.sinceMoment = append(t.sinceMoment, milliseconds(answered.Sub(moment)))
	for _, note := range notes {
		t.notes[note]++
	}
}

func (t *tally) fail(kind string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.errors[kind]++
}

// take returns what was collected since the last take.
func (t *tally) take(dials int64) result {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	defer t.reset()
	seconds := time.Since(t.started).Seconds()
	return result{
		Calls:       len(t.latency),
		Seconds:     rounded(seconds),
		PerSecond:   rounded(float64(len(t.latency)) / seconds),
		Latency:     quantilesOf(t.latency),
		SinceMoment: quantilesOf(t.sinceMoment),
		Errors:      t.errors,
		Notes:       t.notes,
		Dials:       dials,
	}
}

func quantilesOf(values []float64) quantiles {
	slices.Sort(values)
	return quantiles{
		P50: quantile(values, 0.5),
		P90: quantile(values, 0.9),
		P99: quantile(values, 0.99),
		Max: quantile(values, 1),
	}
}

// quantile returns the smallest value that at least this share of the sorted values does not exceed.
func quantile(ranked []float64, share float64) float64 {
	if len(ranked) == 0 {
		return 0
	}
	rank := int(math.Ceil(share * float64(len(ranked))))
	return rounded(ranked[max(rank, 1)-1])
}

func milliseconds(duration time.Duration) float64 {
	return duration.Seconds() * 1000
}

func rounded(value float64) float64 {
	return math.Round(value*1000) / 1000
}
