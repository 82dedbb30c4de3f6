package main

// The types of groups that have no Go module to import, from their documented fields. What they take
// from Kubernetes has Kubernetes' own type.

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// object has the fields of a kind with this spec and status.
type object[Spec, Status any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status"`
}

type condition struct {
	Type               string                 `json:"type"`
	Status             corev1.ConditionStatus `json:"status"`
	Reason             string                 `json:"reason"`
	Message            string                 `json:"message"`
	LastTransitionTime metav1.Time            `json:"lastTransitionTime"`
}

type named struct {
	Name string `json:"name"`
}

type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ---- sedna.io/v1alpha1 --------------------------------------------------------------------------

type (
	JointInferenceService  = object[jointInferenceServiceSpec, jointInferenceServiceStatus]
	FederatedLearningJob   = object[federatedLearningJobSpec, federatedLearningJobStatus]
	IncrementalLearningJob = object[incrementalLearningJobSpec, incrementalLearningJobStatus]
	Model                  = object[modelSpec, modelStatus]
	Dataset                = object[datasetSpec, datasetStatus]
)

type sednaCondition struct {
	condition         `json:",inline"`
	LastHeartbeatTime metav1.Time `json:"lastHeartbeatTime"`
	LastProbeTime     metav1.Time `json:"lastProbeTime"`
}

type autoscaling struct {
	MinReplicas *int32                                         `json:"minReplicas"`
	MaxReplicas int32                                          `json:"maxReplicas"`
	Metrics     []autoscalingv2.MetricSpec                     `json:"metrics"`
	Behavior    *autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior"`
}

type mining struct {
	named      `json:",inline"`
	Parameters []pair `json:"parameters"`
}

type cloudWorker struct {
	Model    named                  `json:"model"`
	Template corev1.PodTemplateSpec `json:"template"`
	HPA      *autoscaling           `json:"hpa"`
}

type edgeWorker struct {
	cloudWorker       `json:",inline"`
	HardExampleMining mining `json:"hardExampleMining"`
}

type jointInferenceServiceSpec struct {
	EdgeWorker  edgeWorker  `json:"edgeWorker"`
	CloudWorker cloudWorker `json:"cloudWorker"`
}

type jointInferenceServiceStatus struct {
	Conditions []sednaCondition `json:"conditions"`
	StartTime  *metav1.Time     `json:"startTime"`
	Active     int32            `json:"active"`
	Failed     int32            `json:"failed"`
	Metrics    []pair           `json:"metrics"`
}

type aggregationWorker struct {
	Model    named                  `json:"model"`
	Template corev1.PodTemplateSpec `json:"template"`
}

type trainingWorker struct {
	Dataset  named                  `json:"dataset"`
	Template corev1.PodTemplateSpec `json:"template"`
}

type transmitter struct {
	S3 *struct {
		AggDataPath    string `json:"aggDataPath"`
		CredentialName string `json:"credentialName"`
	} `json:"s3"`
	WS *struct{} `json:"ws"`
}

type federatedLearningJobSpec struct {
	AggregationWorker aggregationWorker `json:"aggregationWorker"`
	TrainingWorkers   []trainingWorker  `json:"trainingWorkers"`
	PretrainedModel   named             `json:"pretrainedModel"`
	Transmitter       transmitter       `json:"transmitter"`
}

type federatedLearningJobStatus struct {
	Conditions     []sednaCondition `json:"conditions"`
	StartTime      *metav1.Time     `json:"startTime"`
	CompletionTime *metav1.Time     `json:"completionTime"`
	Active         int32            `json:"active"`
	Succeeded      int32            `json:"succeeded"`
	Failed         int32            `json:"failed"`
	Phase          string           `json:"phase"`
}

type timer struct {
	Start string `json:"start"`
	End   string `json:"end"`
}

type trigger struct {
	CheckPeriodSeconds int    `json:"checkPeriodSeconds"`
	Timer              *timer `json:"timer"`
	Condition          struct {
		Operator  string  `json:"operator"`
		Threshold float64 `json:"threshold"`
		Metric    string  `json:"metric"`
	} `json:"condition"`
}

type deployModel struct {
	named             `json:",inline"`
	HotUpdateEnabled  bool  `json:"hotUpdateEnabled"`
	PollPeriodSeconds int64 `json:"pollPeriodSeconds"`
}

type incrementalLearningJobSpec struct {
	Dataset struct {
		named     `json:",inline"`
		TrainProb float64 `json:"trainProb"`
	} `json:"dataset"`
	InitialModel named `json:"initialModel"`
	TrainSpec    struct {
		Template corev1.PodTemplateSpec `json:"template"`
		Trigger  trigger                `json:"trigger"`
	} `json:"trainSpec"`
	EvalSpec struct {
		InitialModel *named                 `json:"initialEvalModel"`
		Template     corev1.PodTemplateSpec `json:"template"`
	} `json:"evalSpec"`
	DeploySpec struct {
		Model             deployModel            `json:"model"`
		Trigger           trigger                `json:"trigger"`
		HardExampleMining mining                 `json:"hardExampleMining"`
		Template          corev1.PodTemplateSpec `json:"template"`
	} `json:"deploySpec"`
	CredentialName string `json:"credentialName"`
	OutputDir      string `json:"outputDir"`
}

type stageCondition struct {
	sednaCondition `json:",inline"`
	Stage          string `json:"stage"`
	Data           string `json:"data"`
}

type incrementalLearningJobStatus struct {
	Conditions     []stageCondition `json:"conditions"`
	StartTime      *metav1.Time     `json:"startTime"`
	CompletionTime *metav1.Time     `json:"completionTime"`
}

type modelSpec struct {
	URL            string   `json:"url"`
	Format         string   `json:"format"`
	Devices        []string `json:"device_soc_versions"`
	CredentialName string   `json:"credentialName"`
}

type modelStatus struct {
	UpdateTime *metav1.Time `json:"updateTime"`
	Metrics    []pair       `json:"metrics"`
}

type datasetSpec struct {
	URL            string `json:"url"`
	Format         string `json:"format"`
	NodeName       string `json:"nodeName"`
	CredentialName string `json:"credentialName"`
}

type datasetStatus struct {
	UpdateTime      *metav1.Time `json:"updateTime"`
	NumberOfSamples int          `json:"numberOfSamples"`
}

// ---- kai.alibabacloud.com/v1alpha1 and kubeflow.org/v1alpha2 ------------------------------------

type (
	TrainingJob = object[trainingJobSpec, trainingJobStatus]
	ScaleIn     = object[scaleInSpec, scaleInStatus]
	ScaleOut    = object[scaleOutSpec, scaleOutStatus]
	TFJob       = object[tfJobSpec, tfJobStatus]
)

type jobCondition struct {
	condition      `json:",inline"`
	LastUpdateTime metav1.Time `json:"lastUpdateTime"`
}

type replicaStatus struct {
	Active    int32 `json:"active"`
	Succeeded int32 `json:"succeeded"`
	Failed    int32 `json:"failed"`
}

type jobStatus struct {
	Conditions        []jobCondition `json:"conditions"`
	StartTime         *metav1.Time   `json:"startTime"`
	CompletionTime    *metav1.Time   `json:"completionTime"`
	LastReconcileTime *metav1.Time   `json:"lastReconcileTime"`
}

type etStatus struct {
	jobStatus       `json:",inline"`
	Phase           string                    `json:"phase"`
	ReplicaStatuses map[string]*replicaStatus `json:"replicaStatuses"`
	CurrentScaler   string                    `json:"currentScaler"`
	RestartCount    int32                     `json:"restartCount"`
}

type replicaSpec struct {
	Replicas      *int32                 `json:"replicas"`
	Template      corev1.PodTemplateSpec `json:"template"`
	RestartPolicy string                 `json:"restartPolicy"`
}

type etReplicaSpec struct {
	Replicas      *int32                 `json:"replicas"`
	MinReplicas   *int32                 `json:"minReplicas"`
	MaxReplicas   *int32                 `json:"maxReplicas"`
	Template      corev1.PodTemplateSpec `json:"template"`
	RestartPolicy *string                `json:"restartPolicy"`
}

type trainingJobSpec struct {
	CleanPodPolicy *string `json:"cleanPodPolicy"`
	ETReplicaSpecs struct {
		Launcher *replicaSpec   `json:"launcher"`
		Worker   *etReplicaSpec `json:"worker"`
	} `json:"etReplicaSpecs"`
	LauncherAttachMode *string `json:"launcherAttachMode"`
	SlotsPerWorker     *int32  `json:"slotsPerWorker"`
	RestartPolicy      string  `json:"restartPolicy"`
	BackoffLimit       *int32  `json:"backoffLimit"`
}

type trainingJobStatus struct {
	etStatus       `json:",inline"`
	TargetWorkers  []string `json:"targetWorkers"`
	CurrentWorkers []string `json:"currentWorkers"`
}

type scalerSpec struct {
	Script  string `json:"script"`
	Timeout *int32 `json:"timeout"`
	Env     []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"env"`
	BackoffLimit *int32 `json:"backoffLimit"`
	Selector     named  `json:"selector"`
}

type scaleInSpec struct {
	scalerSpec `json:",inline"`
	ToDelete   *struct {
		Count    int      `json:"count"`
		PodNames []string `json:"podNames"`
	} `json:"toDelete"`
}

type scaleInStatus struct {
	etStatus     `json:",inline"`
	ToDeletePods []string `json:"toDeletePods"`
}

type scaleOutSpec struct {
	scalerSpec `json:",inline"`
	ToAdd      *struct {
		Count *int32 `json:"count"`
	} `json:"toAdd"`
}

type scaleOutStatus struct {
	etStatus `json:",inline"`
	AddPods  []string `json:"addPods"`
}

type tfJobSpec struct {
	CleanPodPolicy *string                 `json:"cleanPodPolicy"`
	TFReplicaSpecs map[string]*replicaSpec `json:"tfReplicaSpecs"`
}

type tfJobStatus struct {
	jobStatus         `json:",inline"`
	TFReplicaStatuses map[string]*replicaStatus `json:"tfReplicaStatuses"`
}
