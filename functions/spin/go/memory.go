package main

// Memory that the process holds on purpose.

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// It is held in pieces, so that little is taken anew when it is to hold less, and stays between
// invocations, as a program's memory does.
const piece = 8 * mb

var held [][]byte

// resident returns the bytes of this process that are in memory now; 0 where the kernel does not tell.
func resident() int {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var all, pages int
	if _, err := fmt.Fscan(bytes.NewReader(text), &all, &pages); err != nil {
		return 0
	}
	return pages * os.Getpagesize()
}

// hold brings the process to so many bytes of memory, as far as what it holds on purpose allows.
func hold(size int) error {
	for len(held) > 0 && resident() > size {
		last := len(held) - 1
		if err := syscall.Munmap(held[last]); err != nil {
			return fmt.Errorf("memory: the kernel does not take it back: %w", err)
		}
		held = held[:last]
	}
	page := os.Getpagesize()
	missing := max(0, size-resident()) / page * page
	for offset := 0; offset < missing; offset += piece {
		region, err := syscall.Mmap(-1, 0, min(piece, missing-offset), syscall.PROT_READ|syscall.PROT_WRITE,
			syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_POPULATE)
		if err != nil {
			return fmt.Errorf("memory: the kernel refuses %d bytes: %w", min(piece, missing-offset), err)
		}
		held = append(held, region)
	}
	return nil
}
