// Command image makes a container image from one static binary, without a
// container engine:
//
//	go run . -o ackrail.tar -name docker.io/ackrail/ackrail:dev -binary ../../bin/ackrail
//
// The result is a tar of an OCI image layout, as containerd's ctr images
// import, kind load image-archive, skopeo and crane read it. It holds the
// binary in /usr/local/bin, certificate authorities, a user database with the
// user nonroot, who runs the binary, and nothing else: no shell, no libraries.
//
// The same input makes the same bytes. All files are dated 1970; the image's
// own date is SOURCE_DATE_EPOCH, or 1970 too.
//
// It must not know anything about the program that it packs.
package main
