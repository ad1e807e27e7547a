#include "lib/runtime/training/recipe_fit.h"

#include <algorithm>

#include "lib/base/strings.h"
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
