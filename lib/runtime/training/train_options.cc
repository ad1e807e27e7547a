#include "lib/runtime/training/train_options.h"

#include "lib/base/error.h"
#include "lib/runtime/training/recipe.h"

namespace lumen::runtime {

void add_data_variables(CommandLine& line) {
  line.add_variable("LUMEN_DATA",
                    "the directory of the data sets that recipes name, and one more in which their "
                    "files are looked for");
}

void declare(CommandLine& line, TrainOptions& options) {
  const auto matters_to = [&](unsigned tasks) { line.matters_to(tasks, options.given); };
  constexpr unsigned kWithRecipe = kTraining | kTrial | kPrintConfig;
  matters_to(~0u);
  line.add_positional(path_field(
      "recipe", "FILE", "TOML file, or the name of a bundled recipe (--recipes)", options.recipe));
  line.group("Recipe");
  matters_to(kWithRecipe);
  line.add(list_field("set", "TABLE.KEY=VALUE", "change one key of the recipe; repeatable",
                      options.overrides));
  matters_to(~0u);
  line.add(switch_field("recipes", "list the bundled recipes", options.recipes));
  line.add(switch_field("print-config", "print the recipe with every default filled in",
                        options.print_config));
  line.add(switch_field("print-schema", "print a JSON Schema of recipes, for editors",
                        options.print_schema));
  line.group("Check");
  line.add(switch_field("dry-run", "files, shapes, memory, steps, and an ETA from two timed steps",
                        options.dry_run));
  line.add(number_field("preview", "show N training samples, marking what is not learnt",
                        options.preview, 1, 10'000));
  line.add(switch_field("overfit-batch",
                        "learn one batch by heart: a tenth of the loss may be left",
                        options.overfit_batch));
  line.group("Run");
  // Of the command that a trial is a trial of.
  matters_to(kWithRecipe);
  line.add(
      path_field("out", "DIR", "directory of the result, its checkpoints and metrics (runs/NAME)",
                 options.out),
      "o");
  line.add(path_field("resume", "PATH",
                      "go on from the newest checkpoint in DIR (auto), or from the one at PATH",
                      options.resume));
  line.add(switch_field("force", "start over in a DIR that holds an earlier run or another model",
                        options.force));
  matters_to(~0u);
  line.add_threads(number_field("threads",
                                "threads; the result does not depend on it (physical cores)",
                                options.threads, 1, kMaxThreads));
  line.group("Output");
  matters_to(~0u & ~kPrintConfig);
  line.add_json("print the result as one JSON object on standard output", options.json);
  matters_to(kTraining);
  line.add(switch_field("profile", "at the end, where the time of a step went, by operation",
                        options.profile));
  add_data_variables(line);
  line.add_document("recipe-man", recipe_man_page);
  line.add_example("lumen-train digits-mlp", "train a small network on built-in data");
  line.add_example("lumen-train mnist-lenet --set train.epochs=3 --out runs/lenet",
                   "change the recipe, choose the directory");
  line.add_example("lumen-train my.toml --out runs/my --resume auto",
                   "go on where the run stopped, bit by bit the same");
  line.add_example("lumen-train mnist-mlp --print-config > my.toml", "a recipe to start from");
}

void TrainOptions::check() const {
  const struct {
    const char* name;
    bool asked;
    TrainVerb task;
  } verbs[] = {{"--recipes", recipes, kListRecipes},
               {"--print-schema", print_schema, kPrintSchema},
               {"--print-config", print_config, kPrintConfig},
               {"--dry-run", dry_run, kTrial},
               {"--preview", preview.has_value(), kTrial},
               {"--overfit-batch", overfit_batch, kTrial}};
  const char* verb = nullptr;
  TrainVerb task = kTraining;
  for (const auto& one : verbs) {
    if (!one.asked) continue;
    if (verb) fail(ErrorKind::kUsage, verb, " and ", one.name, " exclude each other");
    verb = one.name, task = one.task;
  }
  if (!recipe && !recipes && !print_schema) {
    fail(ErrorKind::kUsage,
         "name a recipe: a TOML file or a bundled one (lumen-train --recipes lists them)");
  }
  if (recipe && (recipes || print_schema)) {
    fail(ErrorKind::kUsage, verb, " takes no recipe");
  }
  if (verb) given.require(task, str("with ", verb));
  if (resume && verb) fail(ErrorKind::kUsage, verb, " does not resume a run; leave --resume out");
  if (resume && force) {
    fail(ErrorKind::kUsage,
         "--resume goes on with a run and --force starts over; give one of them");
  }
  if (resume && resume->empty()) fail(ErrorKind::kUsage, "--resume: expected auto or a path");
  if (out && out->empty()) fail(ErrorKind::kUsage, "--out: expected a directory");
  for (const auto& [name, path] : {std::pair("--out", &out), std::pair("--resume", &resume)}) {
    if (*path) require_utf8(**path, name);  // they become keys of the recipe
  }
}

}  // namespace lumen::runtime
