// Where the data of the bundled recipes lie: under LUMEN_DATA, or built in.
#pragma once

#include <string>
#include <vector>

#include "lib/data/data_options.h"

namespace lumen::data {

struct FoundDataset {
  Format format;
  std::vector<std::string> paths;  // for DataOptions::paths
  std::string separator;           // between the documents of a text that is a substitute
  bool builtin = false;            // the substitute, because the real one was not found
  std::string notice;  // one sentence to show when `builtin`: what is used and how to get the real
};

// The data set called `name`: "mnist", "cifar10", "shakespeare", "stories", "names", "wikitext2",
// "iris", "penguins", "chat", "digits". Looked for under `root`, "" being the value of the
// environment variable LUMEN_DATA. Throws Error(kMissing) naming the path looked at if it is not
// there and has no substitute, or if the root itself does not exist; kUsage for an unknown name.
FoundDataset find_dataset(const std::string& name, const std::string& root = "");

// The formats that the data set called `name` may turn out to have: its own first, then that of its
// substitute. None for an unknown name.
std::vector<Format> dataset_formats(const std::string& name);

// All names, for messages and completion.
std::vector<std::string> dataset_names();

}  // namespace lumen::data
