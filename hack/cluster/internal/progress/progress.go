package progress

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// interval is how often something that takes long shows that it goes on: often
// enough for continuous integration systems that stop silent jobs.
const interval = 15 * time.Second

// Reporter writes lines that begin with the time since it was made. Its
// methods may be called from several goroutines.
type Reporter struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
}

// New returns a Reporter that writes to out. Failures to write are ignored.
func New(out io.Writer) *Reporter {
	return &Reporter{out: out, began: time.Now()}
}

// Say writes one line, formatted as by fmt.Sprintf.
func (r *Reporter) Say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.out, "[%s] %s\n", clock(time.Since(r.began)), fmt.Sprintf(format, args...))
}

// During calls f, and while it runs says every 15 seconds what describe
// returns.
func (r *Reporter) During(describe func() string, f func() error) error {
	done := make(chan struct{})
	var told sync.WaitGroup
	told.Go(func() {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				r.Say("%s", describe())
			}
		}
	})
	err := f()
	close(done)
	told.Wait()
	return err
}

func clock(d time.Duration) string {
	seconds := int(d.Seconds())
	return fmt.Sprintf("%2d:%02d", seconds/60, seconds%60)
}
