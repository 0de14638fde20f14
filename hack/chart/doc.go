// Command chart writes those parts of charts/ackrail that follow from others:
// the definitions and the manager's rules from config/, and the table of values
// in the README from values.yaml. make generate runs it.
//
// Its tests hold the chart to what config/ makes and to what its values promise.
//
// It must not know what the definitions and rules say.
package main
