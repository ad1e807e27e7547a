#include "lib/runtime/training/recipe_fit.h"

#include <algorithm>

#include "lib/base/strings.h"
#include "lib/runtime/adapters/lora.h"
#include "lib/runtime/training/recipe_check.h"

namespace lumen::runtime {

const Recipe& fit_rows(Recipe& recipe, const io::ModelFiles* base) {
  std::optional<int64_t>& length = recipe.data.max_length;
  if (base == nullptr || !length) return recipe;
  const int64_t positions =
      io::get_int(base->config, "max_position_embeddings", 1, limits::kContext);
  if (*length > positions && recipe.given.count("data.max_length") > 0) {
    fail_at_key(recipe, "data.max_length",
                str("rows of ", *length, " tokens do not fit into the ", positions,
                    " positions of the model"));
  }
  length = std::min(*length, positions);
  return recipe;
}

void check_batch_size(const Recipe& recipe, int64_t samples) {
  if (recipe.data.last_batch != "drop" || samples >= recipe.train.batch_size) return;
  fail_at_key(recipe, "data.last_batch",
              str("drop leaves no batch: batch_size is ", recipe.train.batch_size, ", and there ",
                  samples == 1 ? "is 1 sample" : str("are ", samples, " samples"),
                  "; take pad, or a smaller batch_size"));
}

void check_label(const Recipe& recipe, bool has_classes) {
  if (recipe.task == "lm" || recipe.task == "sft") return;
  if (recipe.task == "classify" && !has_classes) {
    fail_at_key(recipe, "task",
                "classify needs classes, and the label has numbers that are no integers; take "
                "task = \"regress\", or data.label_kind = \"classes\" for a class of each");
  }
  if (recipe.task == "regress" && has_classes) {
    fail_at_key(recipe, "task", "regress needs numbers, and the label has classes");
  }
  if (!has_classes && recipe.train.label_smoothing > 0) {
    fail_at_key(recipe, "train.label_smoothing",
                "the label has numbers, no classes to spread it over");
  }
  for (const auto& [key, metric] :
       {std::pair("checkpoint.metric", recipe.checkpoint.metric),
        std::pair("eval.early_stop.metric", recipe.eval.early_stop.metric)}) {
    if (has_classes || metric != "eval_accuracy") continue;
    fail_at_key(recipe, key, "'eval_accuracy' is not measured: the label has numbers");
  }
}

void check_evaluation(const Recipe& recipe, bool has_data) {
  if (has_data) return;
  check_without_evaluation(recipe, [&](const std::string& key, const std::string& message) {
    fail_at_key(recipe, key, message);
  });
}

void check_router_loss(const Recipe& recipe, int64_t used_experts) {
  if (recipe.train.router_aux_loss_coef.value_or(0) == 0 || used_experts > 0) return;
  fail_at_key(recipe, "train.router_aux_loss_coef",
              "the model is no mixture of experts, so there is no router; leave the key out");
}

namespace {

// The names of layers among lora.targets; none stand for all.
std::vector<std::string> named_targets(const LoraRecipe& lora) {
  std::vector<std::string> names = lora.targets;
  std::erase(names, LoraRecipe::kAllLinear);
  return names;
}

}  // namespace

nn::LoraOptions lora_options(const Recipe& recipe, const io::Json& config) {
  const LoraRecipe& lora = recipe.lora;
  const int64_t layers = io::get_int(config, "num_hidden_layers", 0, limits::kLayers, 0);
  if (lora.layers > layers) {
    fail_at_key(recipe, "lora.layers", str(lora.layers, ": the model has ", layers));
  }
  return {.rank = *lora.rank,
          .scale = nn::lora_scale(lora.alpha, *lora.rank, lora.rslora),
          .dropout = lora.dropout,
          .targets = named_targets(lora),
          .first_layer = lora.layers > 0 ? std::max<int64_t>(0, layers - lora.layers) : 0};
}

namespace {

// Whether PEFT takes the additions to experts among `additions`: it makes one of those to gates and
// ups, and knows no dropout there.
void check_experts(const Recipe& recipe, bool have_gates, const NamedArrays& additions) {
  constexpr std::string_view kPairs[][2] = {{"gate_proj", "up_proj"}, {"w1", "w3"}};
  NamedArrays of_experts;
  for (const auto& [name, array] : additions) {
    if (name.find(".experts.") != name.npos) of_experts[name] = array;
  }
  const std::vector<std::string> parts = lora_targets(of_experts);
  const auto has = [&](std::string_view part) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  for (const auto& [gate, up] : kPairs) {
    if (!have_gates || has(gate) == has(up)) continue;
    fail_at_key(recipe, "lora.targets",
                str("of experts PEFT takes additions to ", gate, " and ", up,
                    " together only; name ", has(gate) ? up : gate, " too"));
  }
  if (!parts.empty() && recipe.lora.dropout > 0) {
    fail_at_key(recipe, "lora.dropout", "additions to experts have no dropout, as in PEFT; take 0");
  }
}

}  // namespace

void check_lora_targets(const Recipe& recipe, const std::string& model_type,
                        const nn::Parameters& parameters, const NamedArrays& additions) {
  if (!recipe.lora.rank) return;
  const std::set<std::string>&layers = parameters.linear_layers(),
        &chosen = parameters.named_targets();
  const std::string known = join(std::vector<std::string>(layers.begin(), layers.end()), ", ");
  const std::vector<std::string> targets = named_targets(recipe.lora);
  if (targets.empty() && chosen.empty()) {
    fail(ErrorKind::kUnsupported, "lora: this ", model_type, " has no linear layer ",
         known.empty() ? "" : str("but its output (lora.targets = [\"", known, "\"]) "),
         "that could have an addition; without [lora] all of its weights are trained");
  }
  for (const std::string& target : targets) {
    if (chosen.contains(target)) continue;
    if (layers.contains(target)) {  // the output, which is in no block
      fail_at_key(recipe, "lora.layers",
                  str("the last ", recipe.lora.layers, " blocks have no ", quoted(target),
                      ", which lora.targets names; leave one of the keys out"));
    }
    fail_at_key(recipe, "lora.targets",
                str("no layer of this ", model_type, " that can have an addition is called ",
                    quoted(target), known.empty() ? "" : "; there are ", known));
  }
  check_experts(recipe, layers.contains("experts.gate_up_proj"), additions);
}

optim::OptimizerConfig optimizer_config(const Recipe& recipe,
                                        const std::vector<optim::NamedParameter>& parameters) {
  optim::OptimizerConfig config;
  config.type = recipe.optimizer.type;
  config.weight_decay = recipe.optimizer.weight_decay.value_or(0);
  config.betas = recipe.optimizer.betas;
  config.eps = recipe.optimizer.eps;
  config.momentum = recipe.optimizer.momentum;
  config.dampening = recipe.optimizer.dampening;
  config.nesterov = recipe.optimizer.nesterov;
  config.amsgrad = recipe.optimizer.amsgrad;
  config.alpha = recipe.optimizer.alpha;
  config.no_decay = recipe.optimizer.no_decay;
  for (const OptimizerGroup& group : recipe.optimizer.groups) {
    config.groups.push_back({group.match, group.lr_factor, group.weight_decay});
  }
  if (const auto unused = optim::unused_group(config, parameters)) {
    fail_at_key(recipe, str("optimizer.groups[", *unused, "].match"),
                str(quoted(config.groups[*unused].match),
                    " is of no parameter: none has such a name, or earlier groups match it"));
  }
  if (const auto unused = optim::unused_no_decay(config, parameters)) {
    fail_at_key(recipe, "optimizer.no_decay",
                str(quoted(config.no_decay[*unused]), " is of no parameter"));
  }
  return config;
}

}  // namespace lumen::runtime
