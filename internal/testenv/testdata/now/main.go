// Prints the time, and how long a millisecond took, whenever it reads a line.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		start := time.Now()
		<-time.After(time.Millisecond)
		fmt.Println(start.Unix(), time.Since(start).Nanoseconds())
	}
}
