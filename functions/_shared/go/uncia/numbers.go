package uncia

import (
	"encoding/json"
	"fmt"
	"sort"
	"strings"
)

// Number is a parameter that is a number, from 0 on.
type Number struct {
	// Where it goes; what stands there is the default.
	Value *float64
	Most  float64
	// Of the number, for messages.
	Unit string
}

// Numbers reads parameters that are numbers in their units; others, and unknown ones, are errors.
func Numbers(event json.RawMessage, declared map[string]Number) error {
	given, err := Parameters(event)
	if err != nil {
		return err
	}
	for name, text := range given {
		parameter, is := declared[name]
		if !is {
			var names []string
			for known := range declared {
				names = append(names, known)
			}
			sort.Strings(names)
			return fmt.Errorf("unknown parameter %q; allowed: %s", name, strings.Join(names, ", "))
		}
		var value *float64
		if json.Unmarshal(text, &value) != nil || value == nil {
			return fmt.Errorf("%s: %s is not a number in %s", name, text, parameter.Unit)
		}
		if *value < 0 || *value > parameter.Most {
			return fmt.Errorf("%s: %s is not between 0 and %g %s", name, text, parameter.Most, parameter.Unit)
		}
		*parameter.Value = *value
	}
	return nil
}
