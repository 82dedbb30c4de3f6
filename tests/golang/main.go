// Decodes objects as the Go clients of their kinds do.
//
// Each line of stdin is an object in JSON, and each line of stdout the answer about one object:
// {"refused": why a client cannot decode it, "unknown": the fields that the type does not have}.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"

	kubeflow "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

var types = map[string]func() any{
	"kubeflow.org/v1/PyTorchJob":                func() any { return new(kubeflow.PyTorchJob) },
	"kubeflow.org/v1/TFJob":                     func() any { return new(kubeflow.TFJob) },
	"kubeflow.org/v1alpha2/TFJob":               func() any { return new(TFJob) },
	"kai.alibabacloud.com/v1alpha1/TrainingJob": func() any { return new(TrainingJob) },
	"kai.alibabacloud.com/v1alpha1/ScaleIn":     func() any { return new(ScaleIn) },
	"kai.alibabacloud.com/v1alpha1/ScaleOut":    func() any { return new(ScaleOut) },
	"sedna.io/v1alpha1/JointInferenceService":   func() any { return new(JointInferenceService) },
	"sedna.io/v1alpha1/FederatedLearningJob":    func() any { return new(FederatedLearningJob) },
	"sedna.io/v1alpha1/IncrementalLearningJob":  func() any { return new(IncrementalLearningJob) },
	"sedna.io/v1alpha1/Model":                   func() any { return new(Model) },
	"sedna.io/v1alpha1/Dataset":                 func() any { return new(Dataset) },
}

type answer struct {
	Refused string   `json:"refused,omitempty"`
	Unknown []string `json:"unknown,omitempty"`
}

func decode(line []byte) (answer, error) {
	var head metav1.TypeMeta
	if err := json.Unmarshal(line, &head); err != nil {
		return answer{}, err
	}
	empty, ok := types[head.APIVersion+"/"+head.Kind]
	if !ok {
		return answer{}, fmt.Errorf("no type for %s, %s", head.APIVersion, head.Kind)
	}
	found := answer{}
	strict, err := kjson.UnmarshalStrict(line, empty())
	if err != nil {
		found.Refused = err.Error()
	}
	for _, each := range strict {
		found.Unknown = append(found.Unknown, each.Error())
	}
	return found, nil
}

func main() {
	input, output := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		if err != nil {
			log.Fatal(err)
		}
		found, err := decode(line)
		if err != nil {
			log.Fatal(err)
		}
		if err := output.Encode(found); err != nil {
			log.Fatal(err)
		}
	}
}
