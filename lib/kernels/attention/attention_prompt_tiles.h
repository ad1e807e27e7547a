// Attention over prompts with products on tiles (amx.h). Private to this room.
//
// Columns are queries, as in attention_block.h; keys and values are packed once for a number of
// strips of columns. Blocks of positions begin at multiples of their length, and columns do not
// touch each other: what a query gets depends on nothing beside it.
#pragma once

#include "lib/kernels/attention.h"
#include "lib/kernels/attention/attention_rows.h"
#include "lib/kernels/tiles/amx.h"

namespace lumen::kernels {

// Columns of a strip, and the most strips that share packed keys and values.
inline constexpr int64_t kPromptTileColumns = 2 * kTileRows, kPromptTileStrips = 32;

// Floats of memory that attend_tiles takes.
int64_t prompt_tiles_floats(int64_t head_dim);

// The queries of a block of at most kPromptTileStrips · kPromptTileColumns. noexcept.
void attend_tiles(const TileUnit& unit, const AttentionArgs& args,
                  const attention_rows::QueryBlock& queries, float* memory);

}  // namespace lumen::kernels
