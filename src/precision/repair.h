// Changes of a network that cost no precision and spare layers from being raised.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "calibration/equalize.h"
#include "compare/tensor_map.h"
#include "engine/specialization.h"
#include "graph/assignment.h"
#include "graph/network.h"
#include "ulpscope/answer.h"

namespace ulpscope {

/// What constants are clamped to for fp16: half of its largest value, since other terms are added to them.
inline constexpr double kHalfOfFp16 = 32752.0;

/// Replaces the elements of a constant (an initializer or the output of a Constant layer, by tensor or layer name)
/// whose magnitude is larger than `limit` by the limit with their sign. Infinities and NaN stay: every float type holds
/// them. The bytes of the file are not touched: the network gets a new tensor, and so do bodies that read it. Throws
/// Error(kInvalidArgument) for an unknown name (with similar ones), for what is no float constant, and for a limit that
/// is not positive.
void clamp_constant(Network& network, std::string_view name, double limit = kHalfOfFp16);

/// The same for "NAME" and "NAME:LIMIT" words, of names that may have colons: a word that is a name as a whole is one,
/// and so is one whose beginning is none and whose end is no number. Returns what was done.
std::vector<Repair> clamp_constants(Network& network, const std::vector<std::string>& words);

/// Constants with finite elements beyond the range of fp16 that layers of `low` read in fp16, where they only mask
/// something (mask_reach.h): attention masks of -3.4e38, for instance. One "clamp" each, to a limit that cuts nothing
/// that fp16 holds; nothing is changed.
std::vector<Repair> find_clamps(const Specialization& spec, const Assignment& low);

/// The same clamps at an eighth of their limits. Where outputs stay what they were even so, data of up to eight times
/// the magnitude meet the clamped elements without harm.
std::vector<Repair> tightened(std::span<const Repair> clamps);

/// BatchNormalizations of `low` in fp16 whose parameters fp16 cannot hold, but whose scale and shift it can: the engine
/// prepares them in fp32 before it rounds ("scale-shift"). For the report; nothing needs to be done.
std::vector<Repair> find_scale_shifts(const Specialization& spec, const Assignment& low);

/// For the report and for apply_repairs.
Repair repair_of(const Equalization& equalization);

/// Whether it changes the network ("scale-shift" does not).
bool changes_network(const Repair& repair);

/// One word for each repair that changes the network: the Trial::repairs of a network with these.
std::vector<std::string> words_of(std::span<const Repair> repairs);

/// Whether outputs of two networks are the same in every bit.
bool same_bits(std::span<const TensorMap> a, std::span<const TensorMap> b);

/// Does again what repairs of an answer did, in their order.
/// `scales`: the int8 scales of the network's tensors, before repairs. Throws Error(kInvalidArgument) for what does not
/// fit the network.
void apply_repairs(Network& network, std::map<std::string, float>& scales, std::span<const Repair> repairs);

}  // namespace ulpscope
