// Fuzz target: every tokenizer format. The first byte chooses the format; what is accepted must
// encode and decode without harm, and streaming must give what decoding at once gives.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lib/base/error.h"
#include "lib/io/gguf.h"
#include "lib/io/json.h"
#include "lib/text/tokenizer_formats.h"

namespace lumen::text {
namespace {

std::shared_ptr<const Tokenizer> parse(uint8_t format, std::string_view bytes) {
  switch (format % 4) {
    case 0:
      return parse_tokenizer_json(io::parse_json(bytes, "fuzz"), {});
    case 1:
      return parse_sentencepiece(bytes, nullptr);
    case 2:
      return parse_llama2c(bytes);
    default: {
      auto copy = std::make_shared<std::string>(bytes);
      auto buffer = std::make_shared<Buffer>();
      buffer->data = reinterpret_cast<std::byte*>(copy->data());
      buffer->bytes = copy->size();
      buffer->owner = std::move(copy);
      return load_tokenizer(*io::parse_gguf(buffer, "fuzz", {true, true}));
    }
  }
}

void use(std::shared_ptr<const Tokenizer> tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer->encode(text);
  TokenStream stream(tokenizer);
  std::string streamed;
  for (const int32_t id : ids) {
    if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
    stream.push(id, streamed);
    if (!is_valid_utf8(streamed)) std::abort();
  }
  stream.finish(streamed);
  if (streamed != tokenizer->decode(ids)) std::abort();
}

}  // namespace
}  // namespace lumen::text

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lumen;
  if (size < 1) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const auto tokenizer = text::parse(data[0], bytes);
    for (const std::string_view sample :
         {std::string_view("Hello, world! \u00e9\u6f22\U0001F600\n\n  1234 <s>"),
          bytes.substr(bytes.size() / 2)}) {
      text::use(tokenizer, sample);
    }
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) std::abort();
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
