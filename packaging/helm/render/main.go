// Renders the chart in the same way as `helm template`, for machines on which Helm cannot be
// installed. Helm's templates are Go's templates with the functions of sprig and the functions
// below, and this program uses the same libraries.
//
//	go run main.go CHART [VALUES…] > objects.yaml
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

type object = map[string]interface{}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: go run main.go CHART [VALUES…] > objects.yaml")
		os.Exit(2)
	}
	if err := render(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func render(chart string, overrides []string) error {
	metadata, err := readChart(filepath.Join(chart, "Chart.yaml"))
	if err != nil {
		return err
	}
	values := object{}
	for _, file := range append([]string{filepath.Join(chart, "values.yaml")}, overrides...) {
		override, err := readYAML(file)
		if err != nil {
			return err
		}
		merge(values, override)
	}
	files, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	if err != nil {
		return err
	}
	sort.Strings(files)
	templates := template.New("chart").Option("missingkey=zero").Funcs(sprig.TxtFuncMap())
	templates.Funcs(template.FuncMap{
		"toYaml":   toYAML,
		"fromYaml": fromYAML,
		"toJson":   toJSON,
		"required": required,
		"fail":     func(message string) (string, error) { return "", fmt.Errorf("%s", message) },
		"include": func(name string, data interface{}) (string, error) {
			var text bytes.Buffer
			err := templates.ExecuteTemplate(&text, name, data)
			return text.String(), err
		},
		"tpl": func(text string, data interface{}) (string, error) {
			copied, err := templates.Clone()
			if err != nil {
				return "", err
			}
			parsed, err := copied.New("tpl").Parse(text)
			if err != nil {
				return "", err
			}
			var result bytes.Buffer
			err = parsed.Execute(&result, data)
			return result.String(), err
		},
	})
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := templates.New(filepath.Base(file)).Parse(string(text)); err != nil {
			return err
		}
	}
	data := object{
		"Chart":        metadata,
		"Values":       values,
		"Release":      object{"Name": "test", "Namespace": "default", "Service": "Helm", "Revision": 1},
		"Capabilities": object{"KubeVersion": object{"Version": "v1.30.0", "Major": "1", "Minor": "30"}},
	}
	for _, file := range files {
		name := filepath.Base(file)
		if strings.HasPrefix(name, "_") {
			continue
		}
		var text bytes.Buffer
		if err := templates.ExecuteTemplate(&text, name, data); err != nil {
			return err
		}
		// Helm prints the notes, but does not send them to Kubernetes.
		if strings.HasSuffix(name, ".txt") {
			continue
		}
		fmt.Printf("---\n# Source: %s\n%s\n", name, text.String())
	}
	return nil
}

// readChart returns the members of Chart.yaml under the names that templates use.
func readChart(file string) (object, error) {
	raw, err := readYAML(file)
	if err != nil {
		return nil, err
	}
	chart := object{}
	for key, value := range raw {
		chart[strings.ToUpper(key[:1])+key[1:]] = value
	}
	return chart, nil
}

func readYAML(file string) (object, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	parsed := object{}
	if err := yaml.UnmarshalStrict(text, &parsed); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return parsed, nil
}

// merge writes the values of `from` to `into`, and merges objects.
func merge(into, from object) {
	for key, value := range from {
		inner, isObject := value.(object)
		if present, ok := into[key].(object); ok && isObject {
			merge(present, inner)
		} else {
			into[key] = value
		}
	}
}

func toYAML(value interface{}) (string, error) {
	text, err := yaml.Marshal(value)
	return strings.TrimSuffix(string(text), "\n"), err
}

func fromYAML(text string) (object, error) {
	parsed := object{}
	err := yaml.Unmarshal([]byte(text), &parsed)
	return parsed, err
}

func toJSON(value interface{}) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

func required(message string, value interface{}) (interface{}, error) {
	if value == nil || value == "" {
		return nil, fmt.Errorf("%s", message)
	}
	return value, nil
}
