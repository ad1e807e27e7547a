#include "lib/runtime/report.h"

#include "lib/base/strings.h"
#include "lib/kernels/simd.h"
#include "lib/runtime/environment.h"
#include "lib/runtime/output.h"

namespace lumen::runtime {

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
             "sampling  ", describe(settings), "\n",                                             //
             "memory    weights ", human_bytes(memory.weight_bytes), ", repacked ",              //
             human_bytes(memory.packed_bytes), ", KV cache ",                                    //
             human_bytes(memory.kv_bytes), ", scratch ", human_bytes(memory.scratch_bytes),      //
             ", peak ", human_bytes(peak_memory_bytes()), "\n",                                  //
             "compute   ", session.model->pool().threads(), " threads, ",                        //
             kernels::chosen_simd_target(), "\n");
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
