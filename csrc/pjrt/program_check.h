// Programs that are known to kill the process inside some plugin are refused here, by reading their text.
// This is no verifier: everything else is left to the plugin, which answers with an error.
#pragma once

#include <string_view>

#include "pjrt/compile_options.h"

namespace tpj::pjrt {

// Throws Error(kValue) for
// - an empty text, or bytecode instead of text, or brackets nested so deep that a parser runs out of stack;
// - a result number or convolution dimension that makes a parser allocate gigabytes;
// - a tensor type with a dynamic dimension without a bound, or with more elements than 63 bits can count;
// - a collective whose replica_groups or source_target_pairs name a participant that `options` does not have. Which
//   participants are meant (replicas, partitions or both) follows from the collective's channel and
//   use_global_device_ids;
// - custom call TopK with operands or results of other types than its kernel takes on trust, or PartialReduce without a
//   computation;
// - mhlo.sharding annotations while options.shardy is set and the program is partitioned.
// Strings and comments in the text are skipped. Linear in the length of the text.
void validate_program(std::string_view text, const CompileOptions& options);

}  // namespace tpj::pjrt
