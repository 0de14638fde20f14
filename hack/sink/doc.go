// Command sink is a destination for webhooks: it records what it gets and
// answers as it is told. The demo and the end-to-end tests run it as a pod.
//
//	POST   /any/path                 a delivery: recorded, and answered with 204 or as told
//	GET    /requests                 the records so far, as JSON lines
//	DELETE /requests                 forgets them
//	PUT    /behaviour?path=/x&…      how POSTs to /x are answered, or without path all of them:
//	                                 status=500, delay=10s, hang=true, times=3 (then as before)
//	DELETE /behaviour                204 for everything again
//	GET    /healthz                  200
//
// Each record is written to standard output too, when a request has arrived and
// before it is answered. With -secret-file the signatures of the Standard
// Webhooks specification are verified, by code that shares nothing with the
// product's: it checks what the product sends.
//
// It must not import anything of the product.
package main
