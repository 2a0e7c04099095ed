package uncia

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// The keys of a chain in an event, and of a reference to an answer in a stage's event.
const (
	chainKey  = "uncia"
	answerKey = "uncia:answer"
)

// Of a kernel's name, so much tells it from others; and of an error, so much explains it.
const (
	kernelCharacters = 8
	maxError         = 500
)

// chain says which stages follow the one that an event is for.
type chain struct {
	Kind string `json:"kind"`
	// Passed on as it came.
	Stages json.RawMessage `json:"stages"`
	At     int             `json:"at"`
	Turn   int             `json:"turn"`
	stages []stage
}

type stage struct {
	Name     string          `json:"stage"`
	Function string          `json:"function"`
	URL      string          `json:"url"`
	Repeat   int             `json:"repeat"`
	Event    json.RawMessage `json:"event"`
	Next     []int           `json:"next"`
}

// call is one invocation of a stage.
type call struct {
	stage   stage
	name    string
	payload []byte
	isEvent bool
}

// caller invokes functions. It is there in packages of functions that are stages of chains.
type caller interface {
	invoke(call) (answer []byte, request string, err error)
}

var newCaller func() (caller, error)

var (
	callerOnce sync.Once
	theCaller  caller
	callerErr  error
	kernel     = sync.OnceValue(readKernel)
)

// readKernel returns what tells a running kernel from others: clocks on one compare.
func readKernel() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || len(text) < kernelCharacters {
		return ""
	}
	return string(text[:kernelCharacters])
}

// hop is what a function reports of a stage that it, or one after it, has invoked.
type hop struct {
	Stage    string `json:"stage"`
	Function string `json:"function"`
	Request  string `json:"request"`
	// The request of who made the call; empty where that is not known.
	Parent   string `json:"parent"`
	Sent     int64  `json:"sent_ns"`
	Received int64  `json:"received_ns"`
	Caller   string `json:"caller"`
	Kernel   string `json:"caller_kernel"`
	Bytes    int    `json:"request_bytes"`
	IsEvent  bool   `json:"event,omitempty"`
	Error    string `json:"error,omitempty"`
	Answered *int   `json:"response_bytes,omitempty"`
	envelope
}

// envelope is what the function that was called says of itself.
type envelope struct {
	Start    *int64  `json:"handler_start_ns,omitempty"`
	End      *int64  `json:"handler_end_ns,omitempty"`
	Instance *string `json:"instance,omitempty"`
	Fresh    *bool   `json:"fresh,omitempty"`
	OfKernel *string `json:"kernel,omitempty"`
	// Passed on as they came.
	Spans json.RawMessage `json:"spans,omitempty"`
}

// takeChain returns the chain in an event, and the event without it.
func takeChain(event json.RawMessage) (*chain, json.RawMessage, error) {
	// Within the body of an HTTP request its quotes are escaped.
	quoted, escaped := []byte(`"`+chainKey+`"`), []byte(`"`+chainKey+`\"`)
	if !bytes.Contains(event, quoted) && !bytes.Contains(event, escaped) {
		return nil, event, nil
	}
	given, err := Parameters(event)
	if err != nil {
		// The function says so itself, if it looks.
		return nil, event, nil
	}
	text, is := given[chainKey]
	if !is {
		return nil, event, nil
	}
	var envelope struct {
		Chain *chain `json:"chain"`
	}
	if err := json.Unmarshal(text, &envelope); err != nil {
		return nil, nil, fmt.Errorf("the event's key %s is no chain: %w", chainKey, err)
	}
	delete(given, chainKey)
	rest := object(given)
	if envelope.Chain == nil {
		return nil, rest, nil
	}
	chain := envelope.Chain
	if err := json.Unmarshal(chain.Stages, &chain.stages); err != nil {
		return nil, nil, fmt.Errorf("the stages of the chain: %w", err)
	}
	if chain.At < 0 || chain.At >= len(chain.stages) {
		return nil, nil, fmt.Errorf("the chain has no stage %d", chain.At)
	}
	return chain, rest, nil
}

// follow invokes the stages after this one, all at once, and returns what is reported of them: a list
// in JSON, which is there as well if one fails. request is that of this function, if it is known.
func (c *chain) follow(result Result, request string) (json.RawMessage, error) {
	calls, err := c.calls(result)
	if err != nil || len(calls) == 0 {
		return json.RawMessage("[]"), err
	}
	callerOnce.Do(func() {
		if newCaller == nil {
			callerErr = errors.New("this package invokes no functions: package it with --calls")
			return
		}
		theCaller, callerErr = newCaller()
	})
	if callerErr != nil {
		return nil, callerErr
	}
	hops := make([]json.RawMessage, len(calls))
	failures := make([]error, len(calls))
	var all sync.WaitGroup
	for index, it := range calls[1:] {
		all.Add(1)
		go func() {
			defer all.Done()
			hops[index+1], failures[index+1] = perform(it, request)
		}()
	}
	hops[0], failures[0] = perform(calls[0], request)
	all.Wait()
	return join(hops), errors.Join(failures...)
}

// isByURL says whether a stage was invoked by its URL, so that an answer of it is one of HTTP. Where no
// platform logs hops, what failed is to be an answer that has them, as an error has only a text.
func (c *chain) isByURL(event json.RawMessage) bool {
	var request struct {
		Context json.RawMessage `json:"requestContext"`
	}
	return c.stages[c.At].URL != "" && json.Unmarshal(event, &request) == nil && request.Context != nil
}

// badGateway is the answer of a stage of which a later one failed: as of an error, and with its hops.
func badGateway(failure error, about map[string]any) (Result, error) {
	body, err := json.Marshal(map[string]any{
		"errorType": kindOf(failure), "errorMessage": failure.Error(), "uncia": about,
	})
	headers := map[string]string{"content-type": "application/json"}
	return Result{"statusCode": 502, "headers": headers, "body": string(body)}, err
}

// join makes one list of several, whose entries are not read: of a long chain there are many.
func join(lists []json.RawMessage) json.RawMessage {
	var entries [][]byte
	for _, list := range lists {
		inner := bytes.TrimSpace(list)
		inner = bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimPrefix(inner, []byte("[")), []byte("]")))
		if len(inner) > 0 {
			entries = append(entries, inner)
		}
	}
	return append(append([]byte("["), bytes.Join(entries, []byte(","))...), ']')
}

func (c *chain) calls(result Result) ([]call, error) {
	this := c.stages[c.At]
	type target struct{ at, turn int }
	var targets []target
	if c.Turn < this.Repeat {
		targets = append(targets, target{c.At, c.Turn + 1})
	} else {
		for _, at := range this.Next {
			targets = append(targets, target{at, 1})
		}
	}
	var calls []call
	for _, it := range targets {
		if it.at < 0 || it.at >= len(c.stages) {
			return nil, fmt.Errorf("the chain has no stage %d", it.at)
		}
		stage := c.stages[it.at]
		event, err := fillEvent(stage.Event, result)
		if err != nil {
			return nil, fmt.Errorf("stage %s: %w", stage.Name, err)
		}
		next := chain{Kind: c.Kind, Stages: c.Stages, At: it.at, Turn: it.turn}
		event[chainKey], err = json.Marshal(map[string]chain{"chain": next})
		if err != nil {
			return nil, err
		}
		payload := object(event)
		name := stage.Name
		if stage.Repeat > 1 {
			name = fmt.Sprintf("%s-%d", name, it.turn)
		}
		calls = append(calls, call{stage, name, payload, c.Kind == "asynchronous"})
	}
	return calls, nil
}

// fillEvent returns a stage's event with values of the answer that it follows.
func fillEvent(text json.RawMessage, result Result) (map[string]json.RawMessage, error) {
	event := map[string]json.RawMessage{}
	if len(text) == 0 {
		return event, nil
	}
	if err := json.Unmarshal(text, &event); err != nil {
		return nil, err
	}
	if !bytes.Contains(text, []byte(answerKey)) {
		return event, nil
	}
	for key, value := range event {
		filled, err := fill(value, result)
		if err != nil {
			return nil, err
		}
		event[key] = filled
	}
	return event, nil
}

// object writes values that are JSON already, without reading them: payloads have megabytes.
func object(values map[string]json.RawMessage) json.RawMessage {
	text := []byte{'{'}
	for key, value := range values {
		if len(text) > 1 {
			text = append(text, ',')
		}
		// A text is JSON whatever it says.
		name, _ := json.Marshal(key)
		text = slices.Grow(text, len(name)+len(value)+2)
		text = append(append(append(text, name...), ':'), value...)
	}
	return append(text, '}')
}

func fill(value json.RawMessage, answer Result) (json.RawMessage, error) {
	if !bytes.Contains(value, []byte(answerKey)) {
		return value, nil
	}
	var list []json.RawMessage
	if json.Unmarshal(value, &list) == nil {
		for index := range list {
			item, err := fill(list[index], answer)
			if err != nil {
				return nil, err
			}
			list[index] = item
		}
		return json.Marshal(list)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(value, &object); err != nil {
		return value, nil
	}
	if path, is := object[answerKey]; is {
		var keys []string
		if err := json.Unmarshal(path, &keys); err != nil {
			return nil, err
		}
		return part(answer, keys)
	}
	for key, item := range object {
		filled, err := fill(item, answer)
		if err != nil {
			return nil, err
		}
		object[key] = filled
	}
	return json.Marshal(object)
}

// part returns a value of an answer as the next function would see it.
func part(answer Result, keys []string) (json.RawMessage, error) {
	if len(keys) == 0 {
		return json.Marshal(answer)
	}
	missing := fmt.Errorf("the answer before it has no %s", strings.Join(keys, "."))
	value, is := answer[keys[0]]
	if !is {
		return nil, missing
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	selected, is := find(text, keys[1:])
	if !is {
		return nil, missing
	}
	return selected, nil
}

func find(value json.RawMessage, keys []string) (json.RawMessage, bool) {
	for _, key := range keys {
		var object map[string]json.RawMessage
		var list []json.RawMessage
		if json.Unmarshal(value, &object) == nil && object[key] != nil {
			value = object[key]
			continue
		}
		var index int
		if _, err := fmt.Sscanf(key, "%d", &index); err == nil &&
			json.Unmarshal(value, &list) == nil && index >= 0 && index < len(list) {
			value = list[index]
			continue
		}
		return nil, false
	}
	return value, true
}

// noParent is how a function says that it does not know its own request, as any language writes JSON.
var noParent = regexp.MustCompile(`"parent"\s*:\s*""`)

// perform invokes a stage; it returns the list of its hop and of those that it reports.
func perform(it call, parent string) (json.RawMessage, error) {
	reported := hop{
		Stage: it.name, Function: it.stage.Function, Caller: instance, Kernel: kernel(),
		Parent: parent, Bytes: len(it.payload), IsEvent: it.isEvent, Sent: time.Now().UnixNano(),
	}
	answer, request, err := theCaller.invoke(it)
	reported.Received = time.Now().UnixNano()
	reported.Request = request
	if reported.Request == "" {
		reported.Request = newInstance() + newInstance()
	}
	if err != nil {
		err = explain(it.name, err)
		reported.Error = err.Error()
	}
	if it.isEvent {
		return listOf(reported), err
	}
	if err == nil {
		size := len(answer)
		reported.Answered = &size
	}
	var reply struct {
		Envelope *struct {
			envelope
			Hops json.RawMessage `json:"hops"`
		} `json:"uncia"`
	}
	// Whatever else it answers is its own affair.
	if json.Unmarshal(answer, &reply) != nil || reply.Envelope == nil {
		return listOf(reported), err
	}
	reported.envelope = reply.Envelope.envelope
	later := reply.Envelope.Hops
	if noParent.Match(later) {
		// A function that does not know its own request leaves it to its caller.
		var hops []hop
		if json.Unmarshal(later, &hops) == nil {
			for index := range hops {
				if hops[index].Parent == "" {
					hops[index].Parent = reported.Request
				}
			}
			later, _ = json.Marshal(hops)
		}
	}
	return join([]json.RawMessage{listOf(reported), later}), err
}

func listOf(reported hop) json.RawMessage {
	// Numbers and texts alone, which are JSON whatever they are.
	text, _ := json.Marshal([]hop{reported})
	return text
}

// functionError is what a function says that failed.
type functionError struct{ payload []byte }

func (e functionError) Error() string {
	var failure struct {
		Message string `json:"errorMessage"`
	}
	if json.Unmarshal(e.payload, &failure) == nil && failure.Message != "" {
		return failure.Message
	}
	return string(e.payload)
}

// explain names the stage that failed: the last one, as each passes on what it is told.
func explain(name string, err error) error {
	text := err.Error()
	var failed functionError
	if !errors.As(err, &failed) || !strings.HasPrefix(text, "stage ") {
		text = "stage " + name + ": " + text
	}
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "")
	}
	return errors.New(text)
}
