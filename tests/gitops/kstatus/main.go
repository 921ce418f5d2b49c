// Command kstatus reads a JSON list of Kubernetes objects and prints, one line each, the word that kstatus has for them.
//
// Flux, `kustomize`, `kpt` and others wait by this library; what it says about our objects is what they do.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type answer struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	if err := judge(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// judge keeps each object raw until the last step: plain encoding/json turns generations into floats, which kstatus
// refuses.
func judge() error {
	var raw []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&raw); err != nil {
		return fmt.Errorf("a JSON list of objects is needed: %w", err)
	}
	answers := make([]answer, 0, len(raw))
	for _, one := range raw {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(one); err != nil {
			return err
		}
		result, err := status.Compute(object)
		if err != nil {
			return err
		}
		answers = append(answers, answer{string(result.Status), result.Message})
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}
