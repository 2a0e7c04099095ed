// Reads pages of its package's filler at random.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"pages/uncia"
)

const page = 4096

func main() {
	uncia.Serve(func(event json.RawMessage) (uncia.Result, bool, error) {
		given := 0.0
		err := uncia.Numbers(event, map[string]uncia.Number{
			"count": {Value: &given, Most: 1_000_000, Unit: "pages"},
		})
		if err != nil {
			return nil, false, err
		}
		count := int(given)
		if float64(count) != given {
			return nil, false, fmt.Errorf("count: %g is not a whole number", given)
		}
		result := uncia.Result{
			"count": 0, "filler": 0, "read_ns": 0, "parameters": map[string]any{"count": count},
		}
		if count == 0 {
			return result, true, nil
		}
		begin := time.Now()
		good, size, err := readPages(count)
		result["count"], result["filler"] = good, size
		result["read_ns"] = time.Since(begin).Nanoseconds()
		return result, good == count, err
	})
}

// readPages returns how many of so many pages were whole, and the bytes of the filler.
func readPages(count int) (good int, size int64, err error) {
	program, err := os.Executable()
	if err != nil {
		return 0, 0, err
	}
	file, err := os.Open(filepath.Join(filepath.Dir(program), "uncia-filler.bin"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, errors.New("count: the package has no filler; give it one (filler: 10MB)")
	}
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	about, err := file.Stat()
	if err != nil {
		return 0, 0, err
	}
	pages := about.Size() / page
	if pages == 0 {
		return 0, 0, fmt.Errorf("count: the filler has %d bytes, less than a page of %d", about.Size(), page)
	}
	content := make([]byte, page)
	for range count {
		if read, _ := file.ReadAt(content, rand.Int64N(pages)*page); read == page {
			good++
		}
	}
	return good, about.Size(), nil
}
