// Command demo is the handler that the demo delivers to. A good consumer, it
// keeps the ids that it has processed and does nothing the second time; and
// on demand a bad one, which fails or hangs. How it behaves stands in a file:
// ok, fail or hang.
package main
