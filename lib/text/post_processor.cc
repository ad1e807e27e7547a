#include "lib/text/post_processor.h"

#include <algorithm>
#include <utility>

#include "lib/base/error.h"

namespace lumen::text {
namespace {

constexpr int64_t kMaxId = limits::kVocab - 1;

int32_t to_id(const io::Json& json) {
  if (!json.is_number_integer() || json < 0 || json > kMaxId) {
    fail(ErrorKind::kMalformed, "token id is ", io::describe(&json), ", expected 0 to ", kMaxId);
  }
  return json.get<int32_t>();
}

}  // namespace

void PostProcessor::parse(const io::Json& json) {
  if (json.is_null()) return;
  const std::string type = io::get_string(json, "type");
  with_context(type, [&] {
    if (type == "Sequence") {
      const io::Json* processors = io::find(json, "processors");
      if (processors == nullptr || !processors->is_array()) {
        fail(ErrorKind::kMalformed, "'processors' is ", io::describe(processors),
             ", expected an array");
      }
      for (const io::Json& processor : *processors) parse(processor);
    } else if (type == "TemplateProcessing") {
      parse_template(json);
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      add_frame(json);
    } else if (type != "ByteLevel") {  // which only moves offsets
      fail(ErrorKind::kUnsupported, "unknown post-processor");
    }
  });
}

void PostProcessor::parse_template(const io::Json& json) {
  const io::Json* single = io::find(json, "single");
  if (single == nullptr || !single->is_array()) {
    fail(ErrorKind::kMalformed, "'single' is ", io::describe(single), ", expected an array");
  }
  const io::Json* tokens = io::find(json, "special_tokens");
  Template& pieces = templates_.emplace_back();
  for (const io::Json& element : *single) {
    Piece& piece = pieces.emplace_back();
    if (const io::Json* text = io::find(element, "Sequence")) {
      if (io::get_string(*text, "id") != "A") {
        fail(ErrorKind::kMalformed, "'single' has a second text");
      }
      piece.is_text = true;
    } else if (const io::Json* special = io::find(element, "SpecialToken")) {
      const std::string name = io::get_string(*special, "id");
      const io::Json* token = tokens == nullptr ? nullptr : io::find(*tokens, name);
      const io::Json* ids = token == nullptr ? nullptr : io::find(*token, "ids");
      if (ids == nullptr || !ids->is_array()) {
        fail(ErrorKind::kMalformed, "'special_tokens' has no ids for ", quoted(name));
      }
      for (const io::Json& id : *ids) piece.ids.push_back(to_id(id));
    } else {
      fail(ErrorKind::kMalformed, "an element of 'single' is ", io::describe(&element),
           ", expected a Sequence or SpecialToken");
    }
  }
}

// [CLS] text [SEP], each as [spelling, id].
void PostProcessor::add_frame(const io::Json& json) {
  const auto token = [&](const char* key) {
    const io::Json* pair = io::find(json, key);
    if (pair == nullptr || !pair->is_array() || pair->size() != 2) {
      fail(ErrorKind::kMalformed, "'", key, "' is ", io::describe(pair), ", expected [token, id]");
    }
    return Piece{false, {to_id((*pair)[1])}};
  };
  templates_.push_back({token("cls"), {true, {}}, token("sep")});
}

bool PostProcessor::keeps_text() const {
  return std::all_of(templates_.begin(), templates_.end(), [](const Template& pieces) {
    return std::count_if(pieces.begin(), pieces.end(),
                         [](const Piece& piece) { return piece.is_text; }) == 1;
  });
}

void PostProcessor::apply(std::vector<int32_t>& ids, bool add_special) const {
  for (const Template& pieces : templates_) {
    std::vector<int32_t> out;
    out.reserve(ids.size() + pieces.size());
    for (const Piece& piece : pieces) {
      if (!piece.is_text && !add_special) continue;
      const std::vector<int32_t>& from = piece.is_text ? ids : piece.ids;
      out.insert(out.end(), from.begin(), from.end());
    }
    ids = std::move(out);
  }
}

}  // namespace lumen::text
