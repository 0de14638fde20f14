// Package child runs helper servers, such as PostgreSQL, as child processes that leave nothing behind: they run as an
// unprivileged user when this process is root, in a process group of their own so that Ctrl-C at the terminal does
// not reach them before this process has drained, and (on Linux) they are told to end when this process dies, however
// it dies.
//
// It must not know what the program is that it runs.
package child
