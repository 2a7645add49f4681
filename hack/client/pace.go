package main

import (
	"context"
	"errors"
	"flag"
	"sync"
	"time"
)

// A pace says when calls are made: at a rate, or so many at once.
type pace struct {
	rate    float64
	seconds float64
	atOnce  int
	count   int
}

func (p *pace) addFlags(set *flag.FlagSet) {
	set.Float64Var(&p.rate, "rate", 0, "open loop: calls a second, each at its moment")
	set.Float64Var(&p.seconds, "seconds", 20, "of the open loop")
	set.IntVar(&p.atOnce, "at-once", 0, "closed loop: the next call when one of so many is answered")
	set.IntVar(&p.count, "count", 1000, "calls of the closed loop")
}

func (p *pace) check() error {
	if (p.rate > 0) == (p.atOnce > 0) {
		return errors.New("give one of -rate and -at-once")
	}
	return nil
}

// run makes all calls, unless ctx ends before, and returns when all are answered. A call gets its
// number and the moment at which it was due.
func (p *pace) run(ctx context.Context, call func(number int, moment time.Time)) {
	if p.rate > 0 {
		p.runOpen(ctx, call)
	} else {
		p.runClosed(ctx, call)
	}
}

// runOpen lets no late answer delay another call.
func (p *pace) runOpen(ctx context.Context, call func(int, time.Time)) {
	var calls sync.WaitGroup
	defer calls.Wait()
	start := time.Now()
	for number := range int(p.rate * p.seconds) {
		moment := start.Add(time.Duration(float64(number) / p.rate * float64(time.Second)))
		if !sleepUntil(ctx, moment) {
			return
		}
		calls.Go(func() { call(number, moment) })
	}
}

func (p *pace) runClosed(ctx context.Context, call func(int, time.Time)) {
	numbers := make(chan int)
	var calls sync.WaitGroup
	for range p.atOnce {
		calls.Go(func() {
			for number := range numbers {
				call(number, time.Now())
			}
		})
	}
	for number := range p.count {
		if ctx.Err() != nil {
			break
		}
		numbers <- number
	}
	close(numbers)
	calls.Wait()
}

// sleepUntil tells whether the moment was reached before ctx ended.
func sleepUntil(ctx context.Context, moment time.Time) bool {
	wait := time.NewTimer(time.Until(moment))
	defer wait.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-wait.C:
		return true
	}
}
