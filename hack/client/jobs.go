package main

import (
	"context"
	"errors"
	"flag"
	"math"
	"sync"
	"time"
)

// deletersAtOnce is how many deletions are under way at once.
const deletersAtOnce = 8

// jobsResult has the deletions beside the creates.
type jobsResult struct {
	result
	Deleted result `json:"deleted"`
}

// A run is one series of creates, with the deletion of what it created.
type run struct {
	target  *apiServer
	created *tally
	deleted *tally
	keep    int
	mutex   sync.Mutex
	names   []string
}

func runJobs(ctx context.Context, arguments []string) error {
	var target apiServer
	var when pace
	set := flag.NewFlagSet("jobs", flag.ExitOnError)
	target.addFlags(set)
	when.addFlags(set)
	keep := set.Int("keep", math.MaxInt, "delete a Job when so many were created after it")
	cleanUp := set.Bool("clean-up", false, "delete, when all is measured, what is left")
	every := set.Duration("every", 0, "print a result so often, for what came since the last")
	warmUp := set.Int("warm-up", 0, "creates before, one after the other, that are not counted")
	_ = set.Parse(arguments)
	if err := errors.Join(when.check(), target.open()); err != nil {
		return err
	}
	jobs := &run{target: &target, created: newTally(), deleted: newTally(), keep: *keep}
	jobs.create(ctx, when, *warmUp, *every)
	created := jobs.created.take(0)
	if *cleanUp {
		jobs.deleteAll()
	}
	return printResult(jobsResult{created, jobs.deleted.take(0)})
}

func (r *run) create(ctx context.Context, when pace, warmUp int, every time.Duration) {
	old, finish := r.startDeleting()
	defer finish()
	createOne := func(number int64, moment time.Time) {
		if name := r.target.create(number, moment, r.created); name != "" {
			r.enter(name, old)
		}
	}
	first := firstNumber()
	for number := range int64(warmUp) {
		createOne(first+number, time.Now())
	}
	r.created.take(0)
	defer r.printEvery(every)()
	when.run(ctx, func(number int, moment time.Time) {
		createOne(first+int64(warmUp+number), moment)
	})
}

// enter notes a created Job, and hands out for deletion the oldest that is one too many.
func (r *run) enter(name string, old chan<- string) {
	r.mutex.Lock()
	r.names = append(r.names, name)
	oldest := ""
	if len(r.names) > r.keep {
		oldest, r.names = r.names[0], r.names[1:]
	}
	r.mutex.Unlock()
	if oldest != "" {
		old <- oldest
	}
}

func (r *run) deleteAll() {
	old, finish := r.startDeleting()
	defer finish()
	for _, name := range r.names {
		old <- name
	}
}

// startDeleting returns where to put names of Jobs, and what waits until all of them are deleted.
func (r *run) startDeleting() (chan<- string, func()) {
	old := make(chan string, 1_000)
	var deleters sync.WaitGroup
	for range deletersAtOnce {
		deleters.Go(func() {
			for name := range old {
				r.target.delete(name, r.deleted)
			}
		})
	}
	return old, func() { close(old); deleters.Wait() }
}

// printEvery prints intermediate results until the returned function is called.
func (r *run) printEvery(every time.Duration) func() {
	if every <= 0 {
		return func() {}
	}
	ticker, done := time.NewTicker(every), make(chan struct{})
	go func() {
		for {
			select {
			case <-ticker.C:
				_ = printResult(jobsResult{r.created.take(0), r.deleted.take(0)})
			case <-done:
				return
			}
		}
	}()
	return func() { ticker.Stop(); close(done) }
}
