#include "lib/runtime/chat/answer_channels.h"

#include <algorithm>
#include <array>
#include <utility>

namespace lumen::runtime {
namespace {

constexpr size_t kUsualHeader = 256;  // bytes

// The word of `text` that follows the first `before`, or "".
std::string_view word_after(std::string_view text, std::string_view before) {
  const size_t at = text.find(before);
  if (at == text.npos) return "";
  text.remove_prefix(at + before.size());
  return text.substr(0, text.find_first_of(" \n"));
}

}  // namespace

std::optional<ChannelTokens> channel_tokens(const text::Tokenizer& tokenizer) {
  constexpr const char* kSpellings[] = {"<|start|>", "<|channel|>", "<|message|>",
                                        "<|end|>",   "<|return|>",  "<|call|>"};
  std::array<int32_t, std::size(kSpellings)> ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto id = tokenizer.id_of(kSpellings[i]);
    if (!id || !tokenizer.is_special(*id)) return std::nullopt;
    ids[i] = *id;
  }
  return ChannelTokens{ids[0], ids[1], ids[2], ids[3], ids[4], ids[5]};
}

ChannelReader::ChannelReader(std::shared_ptr<const text::Tokenizer> tokenizer,
                             const ChannelTokens& tokens, std::span<const int32_t> prompt,
                             Shown shown)
    : tokenizer_(std::move(tokenizer)),
      tokens_(tokens),
      which_(shown),
      stream_(tokenizer_, /*skip_special=*/true) {
  header_.reserve(kUsualHeader);
  const auto start = std::find(prompt.rbegin(), prompt.rend(), tokens.start);
  if (start == prompt.rend()) {
    began_ = true;
    return;
  }
  std::string nothing;
  const auto behind = static_cast<size_t>(start - prompt.rbegin());
  for (const int32_t id : prompt.last(behind + 1)) push(id, nothing);
  of_prompt_ = header_.size();
  shown_ = false;
}

bool ChannelReader::push(int32_t token, std::string& out) {
  if (token == tokens_.message) {
    begin_message(out);
    return false;
  }
  if (token == tokens_.start || token == tokens_.end) {
    const bool was_shown = state_ == State::kShown;
    header_.clear();
    of_prompt_ = 0;
    state_ = State::kHeader;
    return was_shown;  // the token has no text, but ends what came before
  }
  if (state_ != State::kHeader) return state_ == State::kShown;
  if (token == tokens_.channel) {
    stream_.finish(header_);
    header_ += '\n';
  } else if (tokenizer_->is_special(token)) {
    stream_.finish(header_);  // <|constrain|> in "final<|constrain|>json"
    header_ += ' ';
  } else {
    stream_.push(token, header_);
  }
  return false;
}

void ChannelReader::begin_message(std::string& out) {
  stream_.finish(header_);
  began_ = true;
  const std::string_view channel = word_after(header_, "\n");
  const bool hides =
      which_ == Shown::kFinal ? !channel.empty() && channel != "final" : channel == "analysis";
  state_ = hides ? State::kHidden : State::kShown;
  if (state_ == State::kShown) {
    if (shown_) out += "\n\n";
    shown_ = true;
    if (const std::string_view recipient = word_after(header_, "to="); !recipient.empty()) {
      out += recipient;
      out += ' ';
    }
  }
  header_.clear();
}

void ChannelReader::finish(std::string& out) {
  if (began_) return;
  stream_.finish(header_);
  out.append(header_, std::min(of_prompt_, header_.size()));
  header_.clear();
}

}  // namespace lumen::runtime
