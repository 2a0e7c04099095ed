// Burns a given amount of CPU time, measured here, in the thread that burns it. A loop count calibrated
// elsewhere would be wrong on another CPU, runtime or allocation.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"syscall"
	"time"

	"spin/uncia"
)

// Between two looks at the clock, each a system call of some 0.3 us: the spin overshoots by 10 us.
const stepsPerRead = 10_000

// The CPU clock itself may jump: on a virtual machine, time stolen by the host can be charged to us.
const (
	excess      = 10 * time.Millisecond
	excessShare = 10
)

// <linux/resource.h>; package syscall has no name for it.
const rusageThread = 1

const mb = 1 << 20

// sink keeps the compiler from leaving the loop out.
var sink uint64

func main() {
	uncia.Serve(spin)
}

func spin(event json.RawMessage) (uncia.Result, bool, error) {
	cpu, duration, memory := 100.0, 0.0, 0.0
	err := uncia.Numbers(event, map[string]uncia.Number{
		"cpu":      {Value: &cpu, Most: 600_000, Unit: "ms"},
		"duration": {Value: &duration, Most: 900_000, Unit: "ms"},
		"memory":   {Value: &memory, Most: 10_240, Unit: "MB"},
	})
	if err != nil {
		return nil, false, err
	}
	// What this thread has used is asked for.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	target := time.Duration(math.Round(cpu * 1e6))
	begin, start := time.Now(), cpuTime()
	if err := hold(int(math.Round(memory * mb))); err != nil {
		return nil, false, err
	}
	filled := cpuTime() - start
	used := burn(start, target)
	wall := time.Since(begin)
	time.Sleep(time.Duration(math.Round(duration*1e6)) - wall)
	// What taking the memory takes is part of the CPU time, and may be more than was asked for.
	most := max(target, filled)
	valid := target <= used && used <= most+max(excess, most/excessShare)
	echo := map[string]any{"cpu": cpu, "duration": duration, "memory": memory}
	return uncia.Result{"cpu_ns": used.Nanoseconds(), "wall_ns": wall.Nanoseconds(), "parameters": echo}, valid, nil
}

// burn spins until this thread has used so much CPU time since start.
func burn(start, target time.Duration) time.Duration {
	used := cpuTime() - start
	x := uint64(1)
	for used < target {
		for step := range uint64(stepsPerRead) {
			x = x*31 + step
		}
		used = cpuTime() - start
	}
	sink = x
	return used
}

// cpuTime returns that of the thread; the kernel says it in whole us.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &usage); err != nil {
		panic(fmt.Sprintf("the kernel does not tell the CPU time of a thread: %v", err))
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
