// Adds one to the sum of the stages before it.
package main

import (
	"encoding/json"
	"fmt"

	"arraysum/uncia"
)

const most = 1_000_000

type parameters struct {
	N        int64 `json:"n"`
	Expected int64 `json:"expected"`
}

func main() {
	uncia.Serve(func(event json.RawMessage) (uncia.Result, bool, error) {
		given, err := read(event)
		if err != nil {
			return nil, false, err
		}
		sum := given.N + 1
		if given.Expected != 0 && given.Expected != sum {
			return nil, false, fmt.Errorf("expected: the sum is %d, not %d", sum, given.Expected)
		}
		echo := map[string]any{"n": given.N, "expected": given.Expected}
		return uncia.Result{"sum": sum, "parameters": echo}, true, nil
	})
}

func read(event json.RawMessage) (parameters, error) {
	values, err := uncia.Parameters(event)
	if err != nil {
		return parameters{}, err
	}
	var given parameters
	for name, value := range values {
		target := map[string]*int64{"n": &given.N, "expected": &given.Expected}[name]
		if target == nil {
			return given, fmt.Errorf("unknown parameter %q; allowed: n, expected", name)
		}
		if err := json.Unmarshal(value, target); err != nil {
			return given, fmt.Errorf("%s: %s is not a whole number", name, value)
		}
		if *target < 0 || *target > most+1 {
			return given, fmt.Errorf("%s: %d is not between 0 and %d", name, *target, most)
		}
	}
	return given, nil
}
