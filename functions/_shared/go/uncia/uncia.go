// Package uncia is what the catalogue's Go functions share: the Runtime API, parameters in, the key
// "uncia" of the answer out. It is put into the function's module when the function is packaged. It
// needs the standard library only, and of that no package net/http, which takes longer to start than
// the rest.
package uncia

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode/utf8"
)

const prefix = "/2018-06-01/runtime/"

// Keys of a result: what it has for the next stage alone, and intervals that the function measured,
// a list of [name, start, end] in Unix time in ns, which become part of the answer's key "uncia".
const (
	handedOn = "payload"
	spansKey = "spans"
)

// Result is what a function answers with, without the key "uncia".
type Result map[string]any

// Work does what a function does: its result, and whether that was checked and is right.
type Work func(event json.RawMessage) (Result, bool, error)

var (
	instance = newInstance()
	calls    atomic.Int64
)

func newInstance() string {
	var name [8]byte
	if _, err := rand.Read(name[:]); err != nil {
		fail(err)
	}
	return hex.EncodeToString(name[:])
}

// Parameters returns those in an event: the event itself, or the JSON in the body of an HTTP request.
func Parameters(event json.RawMessage) (map[string]json.RawMessage, error) {
	wrong := errors.New("the event must be a JSON object of parameters")
	var given map[string]json.RawMessage
	if json.Unmarshal(event, &given) != nil {
		return nil, wrong
	}
	_, request := given["requestContext"]
	if _, body := given["body"]; !body && !request {
		return given, nil
	}
	var envelope struct {
		Body   *string `json:"body"`
		Base64 bool    `json:"isBase64Encoded"`
	}
	if err := json.Unmarshal(event, &envelope); err != nil {
		return nil, err
	}
	if envelope.Body == nil || *envelope.Body == "" {
		return nil, nil
	}
	body := []byte(*envelope.Body)
	if envelope.Base64 {
		// As JSON has bytes.
		if err := json.Unmarshal([]byte(strconv.Quote(*envelope.Body)), &body); err != nil {
			return nil, err
		}
	}
	given = nil
	if json.Unmarshal(body, &given) != nil {
		return nil, wrong
	}
	return given, nil
}

// Text reads a parameter that is a text. One without escapes is taken as it is: payloads have megabytes.
func Text(value json.RawMessage) (text string, err error) {
	last := len(value) - 1
	if last > 0 && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 && utf8.Valid(value) {
		return string(value[1:last]), nil
	}
	return text, json.Unmarshal(value, &text)
}

// Enveloped makes a handler of what a function does, as lambda.Start of aws-lambda-go takes it.
func Enveloped(work Work) func(context.Context, json.RawMessage) (Result, error) {
	return func(ctx context.Context, event json.RawMessage) (Result, error) {
		cpu := cpuTime()
		start := time.Now()
		fresh := calls.Add(1) == 1
		given := event
		chain, event, err := takeChain(event)
		if err != nil {
			return nil, err
		}
		result, valid, err := work(event)
		if err != nil {
			return nil, err
		}
		var hops json.RawMessage
		var failure error
		if chain != nil {
			request, _ := ctx.Value(requestKey{}).(string)
			hops, failure = chain.follow(result, request)
			if failure != nil && (len(hops) <= len("[]") || !chain.isByURL(given)) {
				return nil, failure
			}
		}
		about := map[string]any{
			"fresh":            fresh,
			"instance":         instance,
			"handler_start_ns": start.UnixNano(),
			"handler_end_ns":   time.Now().UnixNano(),
			"cpu_ns":           cpuTime() - cpu,
			"valid":            valid && failure == nil,
		}
		if chain != nil {
			about["kernel"] = kernel()
			about["hops"] = hops
			if len(hops) > len("[]") {
				// It has been handed on; the caller has no use for it.
				delete(result, handedOn)
			}
		}
		if spans, is := result[spansKey]; is {
			about[spansKey] = spans
			delete(result, spansKey)
		}
		if failure != nil {
			return badGateway(failure, about)
		}
		result["uncia"] = about
		return result, nil
	}
}

// requestKey is that of the request's id in a handler's context.
type requestKey struct{}

// cpuTime returns that of the process, in ns; the kernel says it in whole us.
func cpuTime() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// Serve answers one event after another. It returns never; the platform ends the process.
func Serve(work Work) {
	handler := Enveloped(work)
	api, err := dial(os.Getenv("AWS_LAMBDA_RUNTIME_API"))
	if err != nil {
		fail(err)
	}
	next := api.request("GET", "invocation/next", nil)
	ask := next
	for {
		if _, err := api.connection.Write(ask); err != nil {
			fail(err)
		}
		if len(ask) > len(next) {
			// What it says of the answer that was sent with the question.
			if err := api.acknowledge(); err != nil {
				fail(err)
			}
		}
		id, event, err := api.event()
		if err != nil {
			fail(err)
		}
		ask = append(api.answer(id, handler, event), next...)
	}
}

type runtimeAPI struct {
	host       string
	connection net.Conn
	reader     *bufio.Reader
}

func dial(address string) (*runtimeAPI, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &runtimeAPI{address, connection, bufio.NewReader(connection)}, nil
}

func (api *runtimeAPI) request(method, path string, body []byte) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s %s%s HTTP/1.1\r\nHost: %s\r\n", method, prefix, path, api.host)
	if method == "POST" {
		fmt.Fprintf(&text, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	text.WriteString("\r\n")
	text.Write(body)
	return text.Bytes()
}

// answer returns the request that carries what the handler says to an event.
func (api *runtimeAPI) answer(
	id string, handler func(context.Context, json.RawMessage) (Result, error), event []byte,
) []byte {
	result, err := handler(context.WithValue(context.Background(), requestKey{}, id), event)
	var body []byte
	if err == nil {
		body, err = json.Marshal(result)
	}
	if err == nil {
		return api.request("POST", "invocation/"+id+"/response", body)
	}
	// Texts alone, which are JSON whatever they say.
	body, _ = json.Marshal(map[string]string{"errorMessage": err.Error(), "errorType": kindOf(err)})
	return api.request("POST", "invocation/"+id+"/error", body)
}

// kindOf is what an error's type is called, without its package.
func kindOf(err error) string {
	kind := fmt.Sprintf("%T", err)
	return kind[strings.LastIndexByte(kind, '.')+1:]
}

func (api *runtimeAPI) acknowledge() error {
	status, _, body, err := api.response()
	if err == nil && status/100 != 2 {
		// Too large, for one: who waits for it has been answered so.
		fmt.Fprintf(os.Stderr, "the Runtime API answered %d: %s\n", status, body)
	}
	return err
}

func (api *runtimeAPI) event() (id string, event []byte, err error) {
	status, id, event, err := api.response()
	if err == nil && status != 200 {
		err = fmt.Errorf("the Runtime API answered %d: %s", status, event)
	}
	return id, event, err
}

// response reads one: its status, the id of the invocation if it has one, and its body.
func (api *runtimeAPI) response() (status int, id string, body []byte, err error) {
	line, err := api.line()
	if err != nil {
		return 0, "", nil, err
	}
	if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &status); err != nil {
		return 0, "", nil, err
	}
	length := 0
	for {
		line, err := api.line()
		if err != nil {
			return 0, "", nil, err
		}
		if line == "" {
			break
		}
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "content-length":
			if length, err = strconv.Atoi(value); err != nil {
				return 0, "", nil, err
			}
		case "lambda-runtime-aws-request-id":
			id = value
		}
	}
	body = make([]byte, length)
	_, err = io.ReadFull(api.reader, body)
	return status, id, body, err
}

func (api *runtimeAPI) line() (string, error) {
	text, err := api.reader.ReadString('\n')
	return strings.TrimRight(text, "\r\n"), err
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "runtime:", err)
	os.Exit(1)
}
