#include "lib/runtime/tool/report.h"

#include <cmath>

#include "lib/base/strings.h"
#include "lib/kernels/simd.h"
#include "lib/runtime/bench/bench_profile.h"
#include "lib/runtime/tool/environment.h"
#include "lib/runtime/tool/output.h"
#include "lib/runtime/version.h"

namespace lumen::runtime {
namespace {

io::Json sampling_json(const SamplingSettings& settings) {
  io::Json::object_t biases;  // by its operator[] many of them would take quadratic time
  for (const auto& [token, bias] : settings.logit_bias) {
    biases.emplace_back(str(token), std::isinf(bias) ? io::Json("-inf") : io::Json(bias));
  }
  return {{"temperature", settings.temperature},
          {"top_k", settings.top_k},
          {"top_p", settings.top_p},
          {"min_p", settings.min_p},
          {"repeat_penalty", settings.repeat_penalty},
          {"presence_penalty", settings.presence_penalty},
          {"frequency_penalty", settings.frequency_penalty},
          {"logit_bias", std::move(biases)},
          {"dry_multiplier", settings.dry.multiplier},
          {"dry_base", settings.dry.base},
          {"dry_allowed_length", settings.dry.allowed_length},
          {"dry_penalty_last_n", settings.dry.last_n},
          {"dry_sequence_breakers", settings.dry.breakers},
          {"top_n_sigma", settings.top_n_sigma},
          {"typical_p", settings.typical_p},
          {"xtc_probability", settings.xtc_probability},
          {"xtc_threshold", settings.xtc_threshold},
          {"repeat_last_n", settings.repeat_last_n},
          {"dynatemp_range", settings.dynatemp_range},
          {"dynatemp_exp", settings.dynatemp_exp},
          {"samplers", names(settings.steps)},
          {"mirostat", settings.mirostat},
          {"mirostat_ent", settings.mirostat_ent},
          {"mirostat_lr", settings.mirostat_lr}};
}

}  // namespace

std::string describe(const MemoryPlan& memory) {
  return str("budget    weights ", human_bytes(memory.weight_bytes), " (mapped), KV cache ",
             human_bytes(memory.kv_bytes), ", together ",
             human_bytes(memory.weight_bytes + memory.kv_bytes), "; available ",
             human_bytes(memory.available_bytes), "\n");
}

std::string describe(const Session& session, const GenerationResult& result,
                     const SamplingSettings& settings) {
  const MemoryPlan& memory = session.model->memory();
  const GenerationTimings& timings = result.timings;
  return str("load      ", fixed(session.load_seconds * 1000, 1), " ms\n",                       //
             "prompt    ", result.prompt_tokens, " tokens (", result.cached_tokens,              //
             " cached), ", fixed(timings.prefill * 1000, 1), " ms, ",                            //
             fixed(result.prompt_tokens_per_second(), 1), " tokens/s\n",                         //
             "answer    ", result.completion_tokens(), " tokens, ",                              //
             fixed(timings.decode * 1000, 1), " ms, ", fixed(result.tokens_per_second(), 1),     //
             " tokens/s; first after ", fixed(timings.first_token * 1000, 1), " ms; ended by ",  //
             name(result.stop_reason), "\n",                                                     //
             "drafts    ", result.drafted_tokens, " tokens, ", result.accepted_tokens,
             " of them right\n",                                                             //
             "sampling  ", describe(settings), "\n",                                         //
             "memory    weights ", human_bytes(memory.weight_bytes), ", repacked ",          //
             human_bytes(memory.packed_bytes), ", KV cache ",                                //
             human_bytes(memory.kv_bytes), ", scratch ", human_bytes(memory.scratch_bytes),  //
             ", peak ", human_bytes(peak_memory_bytes()), "\n",                              //
             "compute   ", session.model->pool().threads(), " threads, ",                    //
             kernels::chosen_simd_target(), "\n");
}

std::string describe(const GenerationProfile& profile, const Session& session,
                     const GenerationResult& result) {
  std::string out;
  const auto add = [&](const Profiler& profiler, const std::string& what, const char* unit) {
    if (profiler.steps() == 0) return;
    const std::string title = str(what, ", threads ", session.model->pool().threads());
    out += "\n" + profile_table(to_json(profiler.profile(), title, unit));
  };
  add(profile.prompt, str("prompt, ", result.read_tokens, " tokens"), "prompt");
  // A pass that verifies a guess is for several tokens.
  add(profile.passes, str("answer, ", result.completion_tokens(), " tokens"),
      result.drafted_tokens > 0 ? "pass" : "token");
  return out;
}

io::Json to_json(const Session& session, const GenerationResult& result,
                 const SamplingSettings& settings) {
  constexpr double kMilliseconds = 1000;
  const GenerationTimings& timings = result.timings;
  io::Json out = {
      {"schema", 1}, {"model", to_valid_utf8(session.name)}, {"text", to_valid_utf8(result.text)}};
  if (result.thinking) out["thinking"] = to_valid_utf8(*result.thinking);
  out.update({{"token_ids", result.token_ids},
              {"prompt_tokens", result.prompt_tokens},
              {"completion_tokens", result.completion_tokens()},
              {"drafted_tokens", result.drafted_tokens},
              {"accepted_tokens", result.accepted_tokens},
              {"stop_reason", std::string(name(result.stop_reason))},
              {"seed", settings.seed},
              {"sampling", sampling_json(settings)},
              {"timings",
               {{"load_ms", session.load_seconds * kMilliseconds},
                {"prefill_ms", timings.prefill * kMilliseconds},
                {"first_token_ms", timings.first_token * kMilliseconds},
                {"decode_ms", timings.decode * kMilliseconds},
                {"prompt_tokens_per_second", result.prompt_tokens_per_second()},
                {"tokens_per_second", result.tokens_per_second()}}},
              {"threads", session.model->pool().threads()},
              {"peak_memory_bytes", peak_memory_bytes()},
              {"version", build_description()["version"]}});
  return out;
}

std::string describe_model(const Session& session) {
  const text::Tokenizer& tokenizer = *session.format.tokenizer();
  std::string out;
  append_safe_text(out, session.name, TextSafety::kTerminal);
  out += str(": ", io::name(session.files.format), ", ", human_bytes(session.files.file_bytes),
             ", context ", session.model->context(), "\ntokenizer: ", tokenizer.kind(), ", ",
             tokenizer.vocab_size(), " tokens\nend tokens:");
  for (const io::EndToken& end : session.format.end_tokens()) {
    out += str(" ", end.id, " ", quoted(tokenizer.token_text(end.id)), " (", end.source, ")");
  }
  return out + "\n";
}

}  // namespace lumen::runtime
