#include "lib/runtime/training/lora_training.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "lib/base/strings.h"
#include "lib/ops/ops.h"
#include "lib/runtime/adapters/apply_adapter.h"
#include "lib/runtime/adapters/lora.h"

namespace lumen::runtime {
namespace {

// The names of layers among lora.targets; none stand for all.
std::vector<std::string> named_targets(const LoraRecipe& lora) {
  std::vector<std::string> names = lora.targets;
  std::erase(names, LoraRecipe::kAllLinear);
  return names;
}

constexpr const char *kNoBias = "none", *kAllBiases = "all";

nn::LowRankInit init_named(const std::string& name) {
  constexpr std::pair<std::string_view, nn::LowRankInit> kNames[] = {
      {"uniform", nn::LowRankInit::kUniform},       {"gaussian", nn::LowRankInit::kGaussian},
      {"orthogonal", nn::LowRankInit::kOrthogonal}, {"random", nn::LowRankInit::kRandom},
      {"pissa", nn::LowRankInit::kPissa},           {"olora", nn::LowRankInit::kOlora}};
  return std::ranges::find(kNames, name, &std::pair<std::string_view, nn::LowRankInit>::first)
      ->second;
}

// What the module of the parameter `name` is called: "norm" of "model.norm.weight".
std::string module_of(const std::string& name) {
  const std::string path = name.substr(0, name.rfind('.'));
  return path.substr(path.rfind('.') + 1);
}

// Takes into `options` what the adapter that is trained on says, and what the recipe has to say,
// too.
void go_on_from(const Recipe& recipe, const LoraAdapter& start, nn::LoraOptions& options) {
  if (start.options.rank != options.rank) {
    fail_at_key(recipe, "lora.rank",
                str(options.rank, ", and the adapter has the rank ", start.options.rank));
  }
  if (std::fabs(start.options.scale - options.scale) > 1e-6 * start.options.scale) {
    const double alpha = start.options.scale / nn::lora_scale(1, options.rank, recipe.lora.rslora);
    fail_at_key(recipe, "lora.alpha",
                str(recipe.lora.alpha, ", and the adapter was trained with ", alpha));
  }
  const bool has_magnitudes = std::ranges::any_of(
      start.tensors, [](const auto& named) { return named.first.ends_with(kMagnitude); });
  if (has_magnitudes != options.dora) {
    fail_at_key(recipe, "lora.dora",
                has_magnitudes ? "false, and the adapter is one of DoRA"
                               : "true, and the adapter is one of LoRA");
  }
  options.own = start.options.own;
  if (options.targets.empty()) options.targets = paths_of_additions(start.tensors);
  for (const auto& [name, array] : start.replaced) {
    if (nn::is_of_module(name, recipe.lora.modules_to_save)) continue;
    if (nn::is_bias(name)) {
      const std::string addition = str(name.substr(0, name.rfind('.') + 1), kLoraA);
      const bool of_addition = start.tensors.contains(addition);
      if (recipe.lora.bias == kAllBiases || (of_addition && recipe.lora.bias != kNoBias)) continue;
      fail_at_key(recipe, "lora.bias",
                  str(recipe.lora.bias, ", and the adapter has ", quoted(name), " in the place of ",
                      "the model's own; say ", of_addition ? "lora_only or all" : kAllBiases));
    }
    fail_at_key(recipe, "lora.adapter",
                str("has ", quoted(name), " in the place of the model's own; name ",
                    quoted(module_of(name)), " in lora.modules_to_save"));
  }
}

// What [lora] adds to the model of this config.json, and so `start`, the adapter that it goes on
// from, or null: the ranks, scales, magnitudes and, without targets, the layers are to be the same.
nn::LoraOptions lora_options(const Recipe& recipe, const io::Json& config,
                             const LoraAdapter* start) {
  const LoraRecipe& lora = recipe.lora;
  const int64_t layers = io::get_int(config, "num_hidden_layers", 0, limits::kLayers, 0);
  if (lora.layers > layers) {
    fail_at_key(recipe, "lora.layers", str(lora.layers, ": the model has ", layers));
  }
  using Biases = nn::LoraOptions::Biases;
  nn::LoraOptions options{
      .rank = *lora.rank,
      .scale = nn::lora_scale(lora.alpha, *lora.rank, lora.rslora),
      .dropout = lora.dropout,
      .dora = lora.dora,
      .init = init_named(lora.init),
      .init_iterations = lora.init_iterations,
      .biases = lora.bias == kNoBias      ? Biases::kNone
                : lora.bias == kAllBiases ? Biases::kAll
                                          : Biases::kOfAdditions,
      .targets = named_targets(lora),
      .exclude = lora.exclude,
      .first_layer = lora.layers > 0 ? std::max<int64_t>(0, layers - lora.layers) : 0};
  for (const LoraGroup& group : lora.groups) {
    const int64_t rank = group.rank.value_or(*lora.rank);
    const double alpha = group.alpha.value_or(lora.alpha);
    options.groups.push_back({group.match, {rank, nn::lora_scale(alpha, rank, lora.rslora)}});
  }
  if (start != nullptr) go_on_from(recipe, *start, options);
  return options;
}

}  // namespace

nn::Parameters frozen_with_additions(const Recipe& recipe, io::Json& config, NamedArrays& tensors,
                                     nn::LoraOptions& options) {
  const std::vector<std::string>& whole = recipe.lora.modules_to_save;
  std::optional<LoraAdapter> start;
  if (recipe.lora.adapter) {
    const std::string path = find_file(recipe, "lora.adapter", *recipe.lora.adapter);
    start = read_adapter(path, config);
    with_context(path, [&] { check_complete(*start, tensors); });
  }
  options = lora_options(recipe, config, start ? &*start : nullptr);
  LoraAdapter trained;  // what is trained whole has to be alone, as in PEFT, and so a head
  constexpr const char* kHead = "lm_head.weight";
  if (nn::is_of_module(kHead, whole) || nn::is_of_module(kHead, options.targets)) {
    trained.replaced[kHead] = {};
  }
  for (const auto& [name, array] : tensors) {
    if (nn::is_of_module(name, whole)) trained.replaced[name] = array;
  }
  untie_head(trained, config, tensors);
  if (start) replace_tensors(start->replaced, tensors);
  const auto seed = static_cast<uint64_t>(recipe.seed);
  const nn::Parameters parameters = nn::Parameters::from_checkpoint(tensors).with_trained(whole);
  return start ? parameters.with_lora(options, seed, start->tensors, start->place)
               : parameters.with_lora(options, seed);
}

void check_adapter_taken(const Recipe& recipe, const nn::Parameters& parameters) {
  for (const std::string& name : parameters.check()) {
    if (parameters.adapter_of(name).empty()) continue;
    const std::string path = name.substr(0, name.rfind(".lora_"));
    const bool is_layer = parameters.named().contains(path + ".weight");
    fail_at_key(recipe, "lora.adapter",
                str("has an addition to ", quoted(path),
                    is_layer ? ", which lora.targets, exclude or layers leave out"
                             : "; the model has no such layer"));
  }
}

void check_trained_modules(const Recipe& recipe, const nn::Parameters& parameters) {
  for (const std::string& module : recipe.lora.modules_to_save) {
    std::set<std::string> known;
    bool is_trained = false;
    for (const auto& [name, tensor] : parameters.named_parameters()) {
      if (name.find(".lora_") != name.npos) continue;
      if (nn::is_of_module(name, {module}) && parameters.has_addition(name)) {
        fail_at_key(recipe, "lora.modules_to_save",
                    str(quoted(name), " has an addition, too; leave one of the two out"));
      }
      known.insert(module_of(name));
      is_trained = is_trained || (tensor.requires_grad() && nn::is_of_module(name, {module}));
    }
    if (is_trained) continue;
    const std::string near = nearest(module, {known.begin(), known.end()});
    fail_at_key(
        recipe, "lora.modules_to_save",
        str("no module of the model is called ", quoted(module),
            near.empty() ? str("; there are ",
                               join(std::vector<std::string>(known.begin(), known.end()), ", "))
                         : str("; did you mean ", near, "?")));
  }
}

void check_trained_biases(const Recipe& recipe, const nn::Parameters& parameters) {
  if (recipe.lora.bias == kNoBias) return;
  for (const auto& [name, tensor] : parameters.named_parameters()) {
    if (nn::is_bias(name) && tensor.requires_grad()) return;
  }
  fail_at_key(recipe, "lora.bias",
              str(recipe.lora.bias, recipe.lora.bias == kAllBiases
                                        ? ", and the model has none"
                                        : ", and no layer with an addition has one"));
}

void join_starts(NamedArrays& weights) {
  constexpr std::string_view kStartOfA = "lora_A.start", kStartOfB = "lora_B.start";
  std::vector<std::string> places;
  for (const auto& [name, array] : weights) {
    if (name.ends_with(kStartOfA)) places.push_back(name.substr(0, name.size() - kStartOfA.size()));
  }
  for (const std::string& place : places) {
    const auto take = [&](std::string_view name) {
      return graph::constant(weights.extract(str(place, name)).mapped());
    };
    const graph::Tensor rows[] = {take(kLoraA), take(kStartOfA)};
    const graph::Tensor columns[] = {take(kLoraB), ops::neg(take(kStartOfB))};
    weights[str(place, kLoraA)] = ops::concat(rows, 0).eval();
    weights[str(place, kLoraB)] = ops::concat(columns, 1).eval();
  }
}

nn::LoraOptions with_starts(nn::LoraOptions options) {
  if (!nn::is_part_of_weight(options.init)) return options;
  options.rank *= 2;
  for (nn::LoraOptions::Group& group : options.groups) group.own.rank *= 2;
  return options;
}

namespace {

// Whether every group is of one of these layers at least.
void check_groups(const Recipe& recipe, const std::vector<std::string>& paths) {
  const std::vector<LoraGroup>& groups = recipe.lora.groups;
  std::vector<bool> used(groups.size());
  for (const std::string& path : paths) {
    const auto first = std::ranges::find_if(
        groups, [&](const LoraGroup& group) { return matches_pattern(path, group.match); });
    if (first != groups.end()) used[static_cast<size_t>(first - groups.begin())] = true;
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (used[i]) continue;
    fail_at_key(recipe, str("lora.groups[", i, "].match"),
                str(quoted(groups[i].match), " is of no addition: none is to such a layer, or ",
                    "earlier groups match it"));
  }
}

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
  if (parts.empty()) return;
  if (recipe.lora.dropout > 0) {
    fail_at_key(recipe, "lora.dropout", "additions to experts have no dropout, as in PEFT; take 0");
  }
  if (recipe.lora.dora) {
    fail_at_key(recipe, "lora.dora", "PEFT makes no DoRA of experts; leave them out of targets");
  }
}

}  // namespace

void check_lora_targets(const Recipe& recipe, const std::string& model_type,
                        const nn::Parameters& parameters, const NamedArrays& additions) {
  const std::set<std::string>&layers = parameters.linear_layers(),
        &chosen = parameters.named_targets();
  const std::string known = join(std::vector<std::string>(layers.begin(), layers.end()), ", ");
  const std::vector<std::string> targets = named_targets(recipe.lora);
  if (targets.empty() && chosen.empty()) {
    fail(ErrorKind::kUnsupported, "lora: this ", model_type, " has no linear layer ",
         known.empty() ? "" : str("but its output (lora.targets = [\"", known, "\"]) "),
         "that could have an addition; without [lora] all of its weights are trained");
  }
  check_groups(recipe, paths_of_additions(additions));
  for (const std::string& layer : recipe.lora.exclude) {
    if (chosen.contains(layer)) continue;
    fail_at_key(recipe, "lora.exclude",
                str("no layer that would have an addition is called ", quoted(layer),
                    known.empty() ? "" : "; there are ", known));
  }
  if (recipe.lora.adapter && targets.empty()) return;  // the layers of the adapter
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

void check_form_in_peft(const Recipe& recipe, const nn::LoraOptions& options,
                        const NamedArrays& trained, const ExportedModel& model) {
  const PeftAdapter adapter = peft_adapter(model, recipe.lora, options, "");
  if (options.dora && adapter.config.contains("target_parameters")) {
    fail_at_key(
        recipe, "lora.dora",
        str("PEFT makes no DoRA of ", adapter.config["target_parameters"][0].get<std::string>(),
            ", a parameter there; leave it out (lora.targets, lora.exclude)"));
  }
  for (const auto& [name, array] : adapter.tensors) {
    if (!options.dora || !name.ends_with(kLoraA)) continue;
    const std::string path = name.substr(0, name.size() - kLoraA.size() - 1);
    if (adapter.tensors.contains(str(path, ".", kMagnitude))) continue;
    fail_at_key(recipe, "lora.dora",
                str(quoted(path),
                    ", one layer in PEFT, is several here, of which some have no addition; name "
                    "all in lora.targets or leave all out, or say export.merge_lora = true"));
  }
  const bool are_alike = options.groups.empty() && options.own.empty();
  if (are_alike || model.weights.size() == trained.size()) return;
  fail_at_key(recipe, "lora.groups",
              "layers that are one in PEFT are several here, which take one rank and alpha for "
              "all; leave the groups out, or say export.merge_lora = true");
}

}  // namespace lumen::runtime
