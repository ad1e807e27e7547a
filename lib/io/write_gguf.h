// Writing GGUF files. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lib/io/gguf.h"
#include "lib/io/json.h"
#include "lib/io/pending_tensor.h"
#include "lib/tensor/named_arrays.h"

namespace lumen::io {

class AtomicFile;

// Metadata and tensors of a file to be, in the order in which they are added. Not thread-safe.
class GgufWriter {
 public:
  using Value = std::variant<uint16_t, uint32_t, int32_t, float, bool, std::string,
                             std::vector<std::string>, std::vector<float>, std::vector<int32_t>,
                             std::vector<bool>, std::vector<uint8_t>>;

  void set(std::string key, const Value& value);
  // The same in the place of the value that the key has, or at the end if it has none.
  void replace(const std::string& key, const Value& value);
  // A pair of another file as it is.
  void copy(const GgufValue& value);

  // A tensor of `dtype`, which write() asks `make` for when it has come to it: one is in memory at
  // a time. Names are at most 64 bytes. What `make` throws ends write().
  void add(std::string name, DType dtype, const Shape& shape, std::function<Array()> make);
  // The same of an array that is there.
  void add(std::string name, const Array& array);

  // The size of the file.
  uint64_t bytes() const;

  // The file up to the tensors' data, aligned: without tensors the whole file.
  std::string header() const;

  // The metadata as a reader has it, `name` being the file's.
  std::shared_ptr<const GgufFile> read_back(const std::string& name) const;

  // Writes version 3, data aligned to 32 bytes, whole under its name (AtomicFile, whose errors it
  // throws). Throws Error(kUnsupported) for a type that GGUF lacks.
  void write(const std::string& path) const;

  // The files that hold tensors of at most `most_bytes` each, where a larger tensor has one of its
  // own: `path` alone if one is enough, else those of a split model, DIR/NAME-00001-of-0000N.gguf
  // for DIR/NAME.gguf. Throws Error(kUsage) for more than limits::kShards.
  std::vector<std::string> parts(const std::string& path, uint64_t most_bytes) const;

  // Writes these files, as write() does. None appears before all are complete; the first, which has
  // the metadata and without which there is no model, is removed before and appears last, so that
  // no reader sees parts of two models together.
  void write_parts(const std::string& path, uint64_t most_bytes) const;

 private:
  // A file to be: all keys and tensors, or those of a part.
  struct Content {
    std::vector<std::pair<std::string, std::string>> metadata;  // values as the file has them
    PendingTensors tensors;

    void set(std::string key, const Value& value);
    std::string header() const;
    uint64_t data_bytes() const;
    void write(AtomicFile& file) const;
  };

  Content whole() const;
  std::vector<Content> divided(uint64_t most_bytes) const;

  std::vector<std::pair<std::string, std::string>> metadata_;
  std::vector<PendingTensor> tensors_;
};

// The architecture of GGUF for a config.json's model_type. Throws Error(kUnsupported).
std::string gguf_architecture(const Json& config);
// Whether the q and k rows of an architecture's files are in the order of interleaved rotary pairs,
// while those of Hugging Face are not.
bool gguf_reorders_rotary_rows(std::string_view architecture);
// A tensor's name in the GGUF files of an architecture, the inverse of what open_model does; "" if
// they have none for it. Those of all experts of a layer have one, as they are one tensor there.
std::string gguf_tensor_name(const std::string& hugging_face_name, std::string_view architecture);
// The other way: the same name if it has none in a Hugging Face model. For a tensor of all experts,
// or of other matrices that are one there, the name has a star for the number of one. Files before
// April 2024 have a tensor per expert, "blk.N.ffn_up.E.weight": its name has the number.
std::string hugging_face_name(const std::string& gguf_name, std::string_view architecture);
// The name of a tensor in ModelFiles::tensors of a file with this config: the same, but with "mtp."
// before the names of what only layers that guess further tokens have (Qwen3.5), which no model of
// ours reads.
std::string gguf_model_tensor(const std::string& gguf_name, const Json& config);
// The same of both tensors that "blk.N.ffn_gate_up_exps.weight" (".bias") has, the gates of all
// experts and the ups, of each expert the rows of its gate before those of its up: some programs
// write them so.
// "" for other names, and for models without such tensors.
std::array<std::string, 2> gguf_gate_and_up(const std::string& gguf_name, const Json& config);
// The same of "blk.N.attn_qkv.weight" and ".bias": the rows of q, k and v, one behind the other, as
// older files of Phi-2 have them. "" for architectures that have such a tensor themselves.
std::array<std::string, 3> gguf_query_key_value(const std::string& gguf_name, const Json& config);
// The name of the tensor that holds the one of this name in an architecture's files: of gates and
// ups of Gemma 4's experts such a one, else itself.
std::string gguf_holding_tensor(const std::string& gguf_name, std::string_view architecture);
// Whether a name has such a star, and the name with a number in its place.
bool is_stack(std::string_view hugging_face_name);
std::string name_in_stack(std::string hugging_face_name, int64_t number);
// How many matrices a tensor of such a name has, and which key of the file says so.
struct StackSize {
  int64_t count;
  std::string_view key;
};
StackSize stack_size(std::string_view hugging_face_name, const Json& config);
// The number of a matrix among those that are one tensor in GGUF, the experts of a layer or AltUp's
// projections, by its name in Hugging Face; none of others.
std::optional<int64_t> number_in_stack(std::string_view hugging_face_name);
// The same of experts alone.
std::optional<int64_t> expert_number(std::string_view hugging_face_name);
// Whether a Hugging Face tensor of this name is no tensor in GGUF but, of all layers together, a
// key: the numbers of Apertus's activations.
bool is_gguf_number(std::string_view hugging_face_name);
// Sets those keys of a model, which must have all such tensors; of others nothing. Throws
// Error(kMalformed) for one of another type than float32, float16 or bfloat16.
void set_gguf_numbers(const Json& config, const NamedArrays& tensors, GgufWriter& writer);
// Sets the keys of Jinja sources by name.
void set_gguf_chat_templates(const std::map<std::string, std::string>& templates,
                             GgufWriter& writer);
// Sets general.sampling.* to what a generation_config.json proposes (temperature, top_k, top_p,
// min_p, repetition_penalty; do_sample false: temperature 0). Throws Error(kMalformed) for numbers
// out of range.
void set_gguf_sampling(const Json& generation_config, GgufWriter& writer);
// The metadata of `config` in the keys of its architecture. The scalings of Llama 3 and of Phi-3
// are tensors (nn/rope.h). Throws Error(kUnsupported) for what GGUF cannot say.
void set_gguf_config(const Json& config, GgufWriter& writer);

}  // namespace lumen::io
