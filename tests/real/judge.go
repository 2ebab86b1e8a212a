// Judges queue documents with YuniKorn's own code: reads one JSON object for each line and writes
// one answer for each line. The fields of an answer:
//
// load: why YuniKorn's validator rejects the document.
// start: why a scheduler does not start with it.
// reload: why a running scheduler with another document rejects it.
// inactive: the scheduler starts, but without the document's placement rules.
// several: the document has other partitions than default, so it was not reloaded.
// queues: the limits of each queue, by path, as the scheduler then uses them.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"regexp"
	"strconv"

	"go.uber.org/zap"

	"github.com/apache/yunikorn-core/pkg/common/configs"
	"github.com/apache/yunikorn-core/pkg/entrypoint"
	"github.com/apache/yunikorn-core/pkg/log"
	"github.com/apache/yunikorn-core/pkg/mock"
	"github.com/apache/yunikorn-core/pkg/scheduler"
	"github.com/apache/yunikorn-core/pkg/webservice/dao"
	"github.com/apache/yunikorn-scheduler-interface/lib/go/si"
)

const base = `
partitions:
  - name: default
    queues:
      - name: root
        submitacl: '*'
        queues:
          - name: base
`

type question struct {
	Text       string `json:"text"`
	Expression string `json:"expression"`
}

type limits struct {
	Max        map[string]int64 `json:"max"`
	Guaranteed map[string]int64 `json:"guaranteed"`
}

type answer struct {
	Load     string            `json:"load"`
	Start    string            `json:"start"`
	Reload   string            `json:"reload"`
	Inactive bool              `json:"inactive"`
	Several  bool              `json:"several"`
	Queues   map[string]limits `json:"queues"`
}

func main() {
	log.InitializeLogger(zap.NewNop(), &zap.Config{Level: zap.NewAtomicLevel()})
	services := entrypoint.StartAllServicesWithParams(true, false)
	_, err := services.RMProxy.RegisterResourceManager(
		&si.RegisterResourceManagerRequest{
			RmID: "judge", PolicyGroup: "judge", Version: "1", Config: base,
		}, &mock.ResourceManagerCallback{})
	if err != nil {
		panic(err)
	}
	reader := bufio.NewReaderSize(os.Stdin, 1<<20)
	writer := json.NewEncoder(os.Stdout)
	writer.SetEscapeHTML(false)
	decoder := json.NewDecoder(reader)
	for number := 0; decoder.More(); number++ {
		var asked question
		if err := decoder.Decode(&asked); err != nil {
			panic(err)
		}
		if asked.Expression != "" {
			_, err := regexp.Compile(asked.Expression)
			_ = writer.Encode(answer{Load: words(err)})
			continue
		}
		_ = writer.Encode(judge(services, asked.Text, number))
	}
}

func judge(services *entrypoint.ServiceContext, text string, number int) answer {
	var said answer
	_, err := configs.LoadSchedulerConfigFromByteArray([]byte(text))
	said.Load = words(err)
	if err == nil {
		name := "start" + strconv.Itoa(number)
		context, err := scheduler.NewClusterContext(name, name, []byte(text))
		said.Start = words(err)
		if err == nil {
			for _, partition := range context.GetPartitionMapClone() {
				said.Inactive = said.Inactive || len(partition.GetPlacementRules()) == 0
			}
			// A reload that removes a partition never ends: the scheduler waits for its own lock.
			if len(context.GetPartitionMapClone()) > 1 {
				said.Several = true
				return said
			}
			partition := context.GetPartitionWithoutClusterID("default")
			if partition == nil {
				said.Reload = "no partition default: the scheduler would wait for itself for ever"
				return said
			}
			said.Queues = map[string]limits{}
			collect(partition.GetPartitionQueues(), said.Queues)
		}
	} else {
		said.Start = said.Load
	}
	update(services, base)
	said.Reload = words(update(services, text))
	return said
}

func update(services *entrypoint.ServiceContext, text string) error {
	return services.RMProxy.UpdateConfiguration(&si.UpdateConfigurationRequest{
		RmID: "judge", PolicyGroup: "judge", Config: text,
	})
}

func collect(queue dao.PartitionQueueDAOInfo, found map[string]limits) {
	found[queue.QueueName] = limits{queue.MaxResource, queue.GuaranteedResource}
	for _, child := range queue.Children {
		collect(child, found)
	}
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
