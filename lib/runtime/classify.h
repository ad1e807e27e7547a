// lumen-run with a classifier: which class pictures belong to.
#pragma once

#include "lib/io/json.h"
#include "lib/runtime/run_options.h"

namespace lumen::runtime {

// Whether `path` is a directory whose config.json is a classifier's. Throws Error(kMalformed) for a
// config.json that is no JSON.
bool is_classifier_directory(const std::string& path);

// Prints one line per picture of options.images, "PATH: CLASS (97.1 %)", or with --json one object
// with the probabilities of all classes. `directory` is a result of lumen-train. Throws Error:
// kUsage if there are no pictures, kUnsupported if the network does not take pictures, kMalformed
// and kMissing for its files and pictures.
void run_classifier(const RunOptions& options, const std::string& directory);

}  // namespace lumen::runtime
