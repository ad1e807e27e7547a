// For tests: recipes on a few short texts, and steps of their tasks.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include "lib/base/testing.h"
#include "lib/runtime/training/recipe.h"
#include "lib/runtime/training/train_task.h"

namespace lumen::runtime::testing {

inline constexpr const char* kLlama =
    "[model]\ntype = \"llama\"\nlayers = 1\ndim = 32\nheads = 2\ncontext = 32\n";
inline constexpr const char* kGpt2 =
    "[model]\ntype = \"gpt2\"\nlayers = 1\ndim = 32\nheads = 2\ncontext = 32\ndropout = 0.1\n";
inline constexpr const char* kLstm =
    "[model]\ntype = \"lstm\"\nhidden = 24\ndropout = 0.1\nlayers = 2\n";

// A recipe on 40 short texts of different lengths: 36 to train on, 4 and a half batches.
inline Recipe text_recipe(const std::string& model,
                          const std::vector<std::string>& overrides = {}) {
  static const std::string directory = [] {
    const std::string place = lumen::testing::temporary_directory();
    std::ofstream file(place + "/texts.jsonl");
    const std::string words = "the cat sat on a mat and saw the dog run";
    for (size_t i = 0; i < 40; ++i) {
      file << "{\"text\": \"" << words.substr(i % 7, 5 + i * 13 % 24) << "\"}\n";
    }
    return place;
  }();
  const std::string rest =
      "[tokenizer]\ntype = \"char\"\n[[data.train]]\npath = \"texts.jsonl\"\n[data]\nmax_length = "
      "32\n[train]\nsteps = 9\nbatch_size = 8\n[optimizer]\nlr = 1e-2\n";
  return read_recipe({"r.toml", directory + "/", model + rest}, overrides);
}

// What follows [model] in a recipe that goes on with the model in `place`.
inline std::string lora_recipe(const std::string& place, const std::string& targets = "") {
  return "[model]\npath = \"" + place + "\"\n[lora]\nrank = 2\nalpha = 8\n" + targets +
         "[[data.train]]\npath = \"texts.jsonl\"\n[data]\nmax_length = 32\n[train]\nsteps = 2\n"
         "batch_size = 4\n";
}

// A recipe that goes on with all weights of `base` for a few steps.
inline Recipe whole_recipe(const std::string& base,
                           const std::vector<std::string>& overrides = {}) {
  const std::string text = "[model]\npath = \"" + base +
                           "\"\n[[data.train]]\npath = \"texts.jsonl\"\n[data]\nmax_length = 32\n"
                           "on_too_long = \"split\"\n[train]\nsteps = 3\nbatch_size = 8\n"
                           "[optimizer]\nlr = 1e-2\nweight_decay = 0.5\n";
  return read_recipe({"w.toml", text_recipe(kLlama).directory, text}, overrides);
}

inline std::vector<double> losses(TrainTask& task, int steps) {
  std::vector<double> result;
  for (int i = 0; i < steps; ++i) result.push_back(task.step(1e-2).loss);
  return result;
}

// A directory with what three steps of additions to `targets` of `base` leave behind: an adapter,
// or the model with it.
inline std::string trained(const std::string& base, const std::string& targets,
                           bool merge = false) {
  const std::string place = lumen::testing::temporary_directory();
  const auto recipe = read_recipe(
      {"l.toml", text_recipe(kLlama).directory,
       lora_recipe(base, str("targets = [", targets, "]\n"))},
      {str("export.merge_lora=", merge), "data.on_too_long=split", "optimizer.lr=1e-2"});
  const auto task = make_task(recipe, {.threads = 1});
  losses(*task, 3);
  task->export_model(place);
  return place;
}

}  // namespace lumen::runtime::testing
