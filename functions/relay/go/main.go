// Takes a payload from its event or from the store, and hands the next one on.
package main

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	rnd "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay/uncia"
)

// Payloads up to this are whole in memory, so that neither making nor checking them is part of the
// transfer; larger ones are made and checked while they pass.
const mostInMemory = 128 << 20

const inline, store, bySize = "inline", "store", "size"

type parameters struct {
	Payload   string `json:"payload"`
	Size      int64  `json:"size"`
	By        string `json:"by"`
	Threshold int64  `json:"threshold"`
	Remove    bool   `json:"remove"`
}

func main() {
	uncia.Serve(relay)
}

func relay(event json.RawMessage) (uncia.Result, bool, error) {
	given, err := read(event)
	if err != nil {
		return nil, false, err
	}
	result := uncia.Result{"taken": 0}
	if given.Payload != "" {
		handed, err := parse(given.Payload)
		if err != nil {
			return nil, false, err
		}
		received, err := handed.take(given.Remove)
		if err != nil {
			return nil, false, err
		}
		result["taken"] = handed.size
		result["spans"] = []any{[]any{"transfer", handed.sent, received.UnixNano()}}
	}
	next, digest, err := handOn(given)
	if err != nil {
		return nil, false, err
	}
	result["payload"], result["size"], result["sha256"] = next, given.Size, digest
	return result, true, nil
}

func read(event json.RawMessage) (parameters, error) {
	values := parameters{Size: 1024, By: inline, Threshold: 100 << 10, Remove: true}
	given, err := uncia.Parameters(event)
	if err != nil {
		return values, err
	}
	if value, is := given["payload"]; is {
		if values.Payload, err = uncia.Text(value); err != nil {
			return values, fmt.Errorf("payload: %w", err)
		}
		delete(given, "payload")
	}
	for name, target := range map[string]any{
		"size": &values.Size, "by": &values.By, "threshold": &values.Threshold, "remove": &values.Remove,
	} {
		if value, is := given[name]; is {
			if err := json.Unmarshal(value, target); err != nil {
				return values, fmt.Errorf("%s: %w", name, err)
			}
			delete(given, name)
		}
	}
	for name := range given {
		return values, fmt.Errorf("unknown parameter %q", name)
	}
	if !slices.Contains([]string{inline, store, bySize}, values.By) {
		return values, fmt.Errorf("by: %q is not one of inline, store, size", values.By)
	}
	if values.Size < 0 || values.Threshold < 0 {
		return values, errors.New("size and threshold: bytes are not negative")
	}
	return values, nil
}

// handed is a payload that this function was handed. As text it is its five fields, with blanks between.
type handed struct {
	by     string
	sent   int64
	size   int64
	digest string
	// The bytes in base64, or the key of the object.
	content string
}

func parse(text string) (handed, error) {
	fields := strings.SplitN(text, " ", 5)
	wrong := errors.New("payload: this is no payload of a relay; hand on {{answer.payload}}")
	if len(fields) != 5 || fields[0] != inline && fields[0] != store {
		return handed{}, wrong
	}
	sent, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return handed{}, wrong
	}
	size, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || size < 0 {
		return handed{}, wrong
	}
	return handed{fields[0], sent, size, fields[3], fields[4]}, nil
}

// take returns when the whole payload was here, and its digest right.
func (h handed) take(remove bool) (received time.Time, err error) {
	if h.by == inline {
		data, err := base64.StdEncoding.DecodeString(h.content)
		received = time.Now()
		if err != nil {
			return received, fmt.Errorf("payload: %w", err)
		}
		digest := sha256.Sum256(data)
		return received, h.check(int64(len(data)), digest[:])
	}
	objects, err := newObjects()
	if err != nil {
		return received, err
	}
	body, err := objects.get(h.content)
	if err != nil {
		return received, err
	}
	defer body.Close()
	digest := sha256.New()
	var size int64
	if h.size <= mostInMemory {
		data := make([]byte, h.size)
		var count int
		count, err = io.ReadFull(body, data)
		received = time.Now()
		digest.Write(data[:count])
		size = int64(count)
		if err == nil {
			// What the object has beyond is counted, too.
			var more int64
			more, err = io.Copy(io.Discard, body)
			size += more
		}
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
	} else {
		size, err = io.CopyBuffer(digest, body, make([]byte, 1<<20))
		received = time.Now()
	}
	if err != nil {
		return received, fmt.Errorf("reading the object %s: %w", h.content, err)
	}
	if err := h.check(size, digest.Sum(nil)); err != nil {
		return received, err
	}
	if remove {
		return received, objects.remove(h.content)
	}
	return received, nil
}

func (h handed) check(size int64, digest []byte) error {
	if size != h.size {
		return fmt.Errorf("payload: it has %d bytes, not %d as was sent", size, h.size)
	}
	if text := hex.EncodeToString(digest); text != h.digest {
		return fmt.Errorf("payload: its SHA-256 is %s, not %s as was sent", text, h.digest)
	}
	return nil
}

// handOn makes the next payload, and returns it as the next function takes it, and its digest.
func handOn(given parameters) (text, digest string, err error) {
	if given.Size == 0 {
		return "", hex.EncodeToString(sha256.New().Sum(nil)), nil
	}
	by := given.By
	if by == bySize {
		by = store
		if given.Size <= given.Threshold {
			by = inline
		}
	}
	if by == inline && given.Size > mostInMemory {
		return "", "", fmt.Errorf("size: %d bytes are too many to hand on inline; use store", given.Size)
	}
	bytes, sum, err := made(given.Size)
	if err != nil {
		return "", "", err
	}
	if by == inline {
		sent := time.Now()
		data, err := io.ReadAll(bytes)
		if err != nil {
			return "", "", err
		}
		content := base64.StdEncoding.EncodeToString(data)
		digest = hex.EncodeToString(sum.Sum(nil))
		return fmt.Sprintf("%s %d %d %s %s", by, sent.UnixNano(), given.Size, digest, content), digest, nil
	}
	objects, err := newObjects()
	if err != nil {
		return "", "", err
	}
	key := objects.prefix + "relay/" + rand.Text()
	sent := time.Now()
	if err := objects.put(key, bytes, given.Size); err != nil {
		return "", "", err
	}
	digest = hex.EncodeToString(sum.Sum(nil))
	return fmt.Sprintf("%s %d %d %s %s", by, sent.UnixNano(), given.Size, digest, key), digest, nil
}

// made returns bytes that do not compress, and their digest, which is whole once they have been read.
func made(size int64) (io.Reader, hash.Hash, error) {
	var seed [32]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, nil, err
	}
	digest := sha256.New()
	source := io.LimitReader(rnd.NewChaCha8(seed), size)
	if size > mostInMemory {
		return io.TeeReader(source, digest), digest, nil
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(source, data); err != nil {
		return nil, nil, err
	}
	digest.Write(data)
	return bytes.NewReader(data), digest, nil
}
