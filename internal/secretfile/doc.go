// Package secretfile reads secrets from files and notices when they change, without a restart, a goroutine or a watch.
//
// A [File] keeps the decoded secret and looks at the file again when it is asked for the value and the last look is
// more than an interval ago. Looking means reading: files of this size are read as fast as their attributes, and neither the
// time, the size nor the inode says reliably that the content is the same (Kubernetes swaps a symlink, tools rewrite
// in place within one tick of the file system's clock). The secret is decoded again only when its bytes have changed.
//
// It fails closed: once the interval has passed, a file that is gone, empty or broken means an error, never the old value.
// Errors name the path and never the content.
//
// The package must not know what the secrets are for, nor how they come to be files.
package secretfile
