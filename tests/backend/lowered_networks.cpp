#include "backend/lowered_networks.h"

#include <cmath>
#include <cstring>

#include "backend/backend.h"
#include "engine/fusion.h"

namespace ulpscope::cuda::fake {

struct Comparison::Case {
  std::string name;
  std::shared_ptr<const Specialization> spec;
  Schedule schedule;
  std::vector<Tensor> inputs;
  Match match;
  std::shared_ptr<WeightCache> cache;
  std::shared_ptr<FakeDevice> device;
  IdMap<LayerId, GraphFunction> subgraphs;
  std::unique_ptr<FakePlan> plan;
};

void Comparison::add(const std::string& name, const Network& network, const std::vector<Tensor>& inputs,
                     const BuildOptions& options, Match match, const Rules& rules, std::shared_ptr<WeightCache> cache) {
  auto made = std::make_shared<Case>();
  made->name = name;
  std::vector<Shape> shapes;
  for (const Tensor& input : inputs) shapes.push_back(input.shape());
  made->spec = specialize(network, shapes);
  const Assignment assignment = assign_precisions(*made->spec, options);
  made->schedule = describe(*made->spec, assignment, fuse(*made->spec, assignment, options.fusion));
  made->inputs = inputs;
  made->match = match;
  made->cache = cache == nullptr ? std::make_shared<WeightCache>() : std::move(cache);
  auto& device = devices_[made->cache.get()];
  if (device == nullptr) device = std::make_shared<FakeDevice>(rules);
  made->device = device;
  made->subgraphs = IdMap<LayerId, GraphFunction>(network.layers.size());
  last_ = &made->schedule;
  cases_.push_back(made);
  try {
    made->plan = std::make_unique<FakePlan>(name, *made->spec, made->schedule, *made->cache, made->subgraphs,
                                            *made->device, bank_, ends_);
  } catch (const std::exception& error) {
    ADD_FAILURE() << name << ": " << error.what();
    cases_.pop_back();
    failed_ = std::move(made);
  }
}

std::int64_t Comparison::host_steps() const {
  return std::ranges::count_if(cases_.back()->plan->steps().steps,
                               [](const Step& step) { return std::holds_alternative<HostStep>(step.work); });
}

std::int64_t Comparison::converting_steps() const {
  return std::ranges::count_if(cases_.back()->plan->steps().steps, &Step::converts);
}

bool Comparison::run() {
  std::printf("%zu networks, %zu kernels\n", cases_.size(), bank_.size());
  const std::string compiler = shim::compiler();
  if (compiler.empty()) return false;
  if (const std::string error = bank_.compile(compiler); !error.empty()) {
    ADD_FAILURE() << error;
    return true;
  }
  for (const auto& c : cases_) try {
      compare(*c);
    } catch (const std::exception& error) {
      ADD_FAILURE() << c->name << ": " << error.what();
    }
  if (skipped_ > 0) std::printf("%d networks with kernels for a GPU alone\n", skipped_);
  return true;
}

namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

/// Half the distance between neighbors near 1.
double unit_of(DataType type) {
  return type == DataType::kFloat16 ? 0x1p-11 : type == DataType::kBFloat16 ? 0x1p-8 : 0x1p-24;
}

std::string difference(const Tensor& got, const Tensor& want, double unit, bool bits) {
  if (got.type() != want.type() || got.shape() != want.shape())
    return fmt::format("{} {} for {} {}", name_of(got.type()), to_string(got.shape()), name_of(want.type()),
                       to_string(want.shape()));
  if (same_bits(got, want)) return "";
  if (want.type() != DataType::kFloat32) return "other integers";
  double distance = 0, magnitude = 0, largest = 0;
  std::int64_t differ = 0, first = -1;
  for (std::int64_t i = 0; i < want.size(); ++i) {
    const double g = got.data<float>()[i], w = want.data<float>()[i];
    if (g == w || (std::isnan(g) && std::isnan(w))) continue;
    ++differ;
    if (bits) first = first < 0 ? i : first;
    if (!(std::fabs(g - w) < INFINITY)) return fmt::format("[{}]: {} for {}", i, g, w);
    distance += (g - w) * (g - w);
    if (std::fabs(g - w) > largest) largest = std::fabs(g - w), first = bits ? first : i;
  }
  double top = 1;
  for (float w : want.values<float>())
    if (std::isfinite(w))
      magnitude += static_cast<double>(w) * w, top = std::max(top, std::fabs(static_cast<double>(w)));
  // Sums in float32 that cancel have no more than this, whatever stores what is left of them.
  if (differ == 0 || (!bits && largest <= 1e-6 * top)) return "";
  const double l2 = std::sqrt(distance / std::max(magnitude, 1e-30));
  // What float32 sums in another order may grow to within a network; a rounding left out or done twice shows as 2e-4.
  const double allowed = bits ? 0 : unit == unit_of(DataType::kFloat32) ? 2e-5 : unit;
  if (l2 <= allowed) return "";
  return fmt::format("relative L2 {:.3g} of {:.3g}, {} of {} differ, [{}]: {} for {}", l2, allowed, differ, want.size(),
                     first, got.data<float>()[first], want.data<float>()[first]);
}

}  // namespace

void Comparison::compare(Case& c) {
  if (!c.plan->can_run()) {
    ++skipped_;
    return;
  }
  if (shares_) return compare_sharing(c);
  WeightCache cache;
  const auto want = find_backend("plain").plan(c.spec, c.schedule, cache, c.subgraphs, nullptr)->run(c.inputs);
  // All memory is one thing first, then another: where that shows, something is read that nobody wrote.
  const auto got = c.plan->run(c.inputs, 0xff), again = c.plan->run(c.inputs, 0x41);
  ASSERT_EQ(got.size(), want.size()) << c.name;
  // The widest rounding of the network: one tie that falls the other way is all that an output may show.
  double unit = unit_of(DataType::kFloat32);
  for (TensorId id : c.schedule.storage.ids())
    if (!c.spec->is_constant(id)) unit = std::max(unit, unit_of(c.schedule.storage[id]));
  for (std::size_t o = 0; o < want.size(); ++o) {
    EXPECT_EQ(difference(got[o], want[o], unit, c.match == Match::kBits), "") << c.name << ", output " << o;
    EXPECT_TRUE(same_bits(got[o], again[o])) << c.name << ", output " << o << " depends on memory that nobody wrote";
  }
}

void Comparison::compare_sharing(Case& c) {
  const auto alone = c.plan->run(c.inputs, 0xff);
  const auto shared = c.plan->run(c.inputs, 0x41, &stores_.try_emplace(c.cache.get(), SIZE_MAX).first->second);
  skipped_steps_ += c.plan->skipped();
  for (std::size_t o = 0; o < alone.size(); ++o)
    EXPECT_TRUE(same_bits(alone[o], shared[o])) << c.name << ", output " << o << " of a run that shares activations";
}

void expect_same(std::vector<std::unique_ptr<Net>>& nets, const Rules& rules) {
  Comparison all;
  for (const auto& net : nets) {
    Network& network = net->finish();
    const auto cache = std::make_shared<WeightCache>();
    const auto add = [&](const char* what, const BuildOptions& options) {
      all.add(fmt::format("{} in {}", network.name, what), network, net->inputs(), options, Match::kRoundings, rules,
              cache);
    };
    add("fp32", options_of({}, Fusion::kFull));
    add("fp16, unfused", options_of({Precision::kFP16}, Fusion::kNone));
    add("fp16", options_of({Precision::kFP16}, Fusion::kFull));
    add("bf16", options_of({Precision::kBF16}, Fusion::kPointwise));
    add("tf32", options_of({Precision::kTF32}, Fusion::kPointwise));
    add("mixed types", mixed(network, 5, Fusion::kFull));
  }
  if (!all.run()) GTEST_SKIP() << "no compiler";
}

}  // namespace ulpscope::cuda::fake
