// Goroutines, a collector at work, files, a process and sockets; a client of the Runtime API of its own.
package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"sort"
	"sync"
	"time"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func goroutines() int {
	numbers := make(chan int)
	var group sync.WaitGroup
	for i := 0; i < 200; i++ {
		group.Add(1)
		go func(factor int) {
			defer group.Done()
			time.Sleep(time.Millisecond)
			numbers <- factor
		}(i)
	}
	go func() { group.Wait(); close(numbers) }()
	sum := 0
	for number := range numbers {
		sum += number
	}
	return sum
}

func collected() bool {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	kept := [][]byte{}
	for i := 0; i < 2000; i++ {
		block := make([]byte, 1<<16)
		if i%100 == 0 {
			kept = append(kept, block)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	return after.NumGC > before.NumGC && len(kept) == 20
}

func fetched() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer listener.Close()
	go func() {
		connection, err := listener.Accept()
		check(err)
		connection.Write([]byte("over the network"))
		connection.Close()
	}()
	connection, err := net.Dial("tcp", listener.Addr().String())
	check(err)
	defer connection.Close()
	text, err := io.ReadAll(connection)
	check(err)
	return string(text)
}

func files() string {
	folder, err := os.MkdirTemp("", "")
	check(err)
	defer os.RemoveAll(folder)
	check(os.WriteFile(folder+"/one", []byte("text"), 0o600))
	check(os.Rename(folder+"/one", folder+"/two"))
	text, err := os.ReadFile(folder + "/two")
	check(err)
	return string(text)
}

func filters() []string {
	threads, err := os.ReadDir("/proc/self/task")
	check(err)
	modes := map[string]bool{}
	for _, thread := range threads {
		status, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/status")
		if err == nil {
			modes[regexp.MustCompile(`(?m)^Seccomp:\s*(\d)`).FindStringSubmatch(string(status))[1]] = true
		}
	}
	names := []string{}
	for name := range modes {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

func handle() map[string]any {
	output, err := exec.Command("/bin/sh", "-c", "echo text").Output()
	check(err)
	interfaces, err := net.Interfaces()
	check(err)
	return map[string]any{
		"sum":        goroutines(),
		"collected":  collected(),
		"fetched":    fetched(),
		"files":      files(),
		"process":    string(output),
		"interfaces": len(interfaces) > 0,
		"filters":    filters(),
	}
}

func main() {
	invocations := "http://" + os.Getenv("AWS_LAMBDA_RUNTIME_API") + "/2018-06-01/runtime/invocation/"
	for {
		event, err := http.Get(invocations + "next")
		check(err)
		io.Copy(io.Discard, event.Body)
		event.Body.Close()
		text, err := json.Marshal(handle())
		check(err)
		id := event.Header.Get("Lambda-Runtime-Aws-Request-Id")
		answer, err := http.Post(invocations+id+"/response", "application/json", bytes.NewReader(text))
		check(err)
		answer.Body.Close()
	}
}
