// Answers at once: what is left of its latency is the platform's.
package main

import (
	"encoding/json"

	"hello/uncia"
)

func main() {
	uncia.Serve(func(json.RawMessage) (uncia.Result, bool, error) {
		return uncia.Result{"message": "hello"}, true, nil
	})
}
