// Reads from a service and sends into it: as a function; on the host (forwarding host ADDRESS EVENT); and
// the service itself (forwarding serve), which prints its address.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"time"

	"forwarding/uncia"
)

// What a client asks for: a read, or a sink until it has no more to send.
const (
	read = 'r'
	sink = 's'
)

const (
	answerBytes = 1 << 10
	pieceBytes  = 1 << 20
)

type parameters struct {
	Reads int   `json:"reads"`
	Send  int64 `json:"send"`
}

func main() {
	if len(os.Args) == 1 {
		uncia.Serve(asFunction)
	}
	if err := onHost(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func onHost(words []string) error {
	if len(words) == 1 && words[0] == "serve" {
		return serve()
	}
	if len(words) != 3 || words[0] != "host" {
		return fmt.Errorf("write: forwarding serve, or forwarding host ADDRESS EVENT")
	}
	result, err := measure(words[1], json.RawMessage(words[2]))
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

func asFunction(event json.RawMessage) (uncia.Result, bool, error) {
	endpoint, err := url.Parse(os.Getenv("AWS_ENDPOINT_URL_S3"))
	if err != nil {
		return nil, false, err
	}
	result, err := measure(endpoint.Host, event)
	return result, true, err
}

func measure(address string, event json.RawMessage) (uncia.Result, error) {
	var given parameters
	if err := json.Unmarshal(event, &given); err != nil {
		return nil, err
	}
	reads, err := timeReads(address, given.Reads)
	if err != nil {
		return nil, err
	}
	sent, err := timeSend(address, given.Send)
	return uncia.Result{"reads_ns": reads, "send_ns": sent.Nanoseconds()}, err
}

func timeReads(address string, count int) ([]int64, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	answer := make([]byte, answerBytes)
	times := make([]int64, 0, count)
	for range count {
		start := time.Now()
		if _, err := connection.Write([]byte{read}); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(connection, answer); err != nil {
			return nil, err
		}
		times = append(times, time.Since(start).Nanoseconds())
	}
	return times, nil
}

func timeSend(address string, size int64) (time.Duration, error) {
	if size == 0 {
		return 0, nil
	}
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	piece := make([]byte, pieceBytes)
	piece[0] = sink
	start := time.Now()
	for left := size; left > 0; left -= pieceBytes {
		if _, err := connection.Write(piece[:min(left, pieceBytes)]); err != nil {
			return 0, err
		}
		piece[0] = 0
	}
	if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	var taken [8]byte
	if _, err := io.ReadFull(connection, taken[:]); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}

func serve() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go answer(connection)
	}
}

func answer(connection net.Conn) {
	defer connection.Close()
	reply := make([]byte, answerBytes)
	piece := make([]byte, pieceBytes)
	for {
		count, err := connection.Read(piece)
		if err != nil {
			return
		}
		if piece[0] == sink && count > 0 {
			for err == nil {
				_, err = connection.Read(piece)
			}
			connection.Write(make([]byte, 8))
			return
		}
		if _, err := connection.Write(reply); err != nil {
			return
		}
	}
}
