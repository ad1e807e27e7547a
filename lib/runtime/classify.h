// lumen-run with a network that is no language model: which class pictures or rows of a table
// belong to, or which number rows have.
#pragma once

#include "lib/io/json.h"
#include "lib/runtime/run_options.h"

namespace lumen::runtime {

// Whether `path` is a directory whose config.json is a classifier's. Throws Error(kMalformed) for a
// config.json that is no JSON.
bool is_classifier_directory(const std::string& path);

// Prints one line per picture of options.images, "PATH: CLASS (97.1 %)", or per row of the tables
// there, "PATH:LINE: CLASS (97.1 %)" or, of a network trained on numbers, "PATH:LINE: 3.25"; with
// --json one object with the probabilities of all classes. `directory` is a result of lumen-train.
// Throws Error: kUsage if there are no files, kUnsupported if the network takes neither pictures
// nor rows, kMalformed, kMismatch and kMissing for its files and what is to be classified.
void run_classifier(const RunOptions& options, const std::string& directory);

}  // namespace lumen::runtime
