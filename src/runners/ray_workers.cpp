#include "runners/ray_workers.h"

#include <atomic>

#include "core/messages.h"
#include "ulpscope/error.h"
#include "ulpscope/search.h"

namespace ulpscope {
namespace {

Value items_value(std::span<const WorkItem> items) {
  Value::Array result;
  for (const WorkItem& each : items)
    result.emplace_back(Value::Array{static_cast<std::int64_t>(each.sample), each.task});
  return result;
}

}  // namespace

RayWorkers::RayWorkers(const RayOptions& options) {
  // An interruption ends what takes long here. Later calls are short: the search ends, and the cluster is left in
  // order.
  WorkerOptions worker = default_worker_options();
  const auto opening = std::make_shared<std::atomic<bool>>(true);
  worker.interrupted = [opening, before = worker.interrupted] { return *opening && before && before(); };
  worker_ = Worker::start(std::move(worker));
  worker_->set_call_limit(std::chrono::milliseconds(0));
  worker_->call("ray_open", Value::Map{{"address", options.address},
                                       {"workers", options.workers},
                                       {"gpus", options.gpus},
                                       {"version", options.version},
                                       {"processor", options.processor}});
  *opening = false;
}

RayWorkers::~RayWorkers() {
  try {
    if (worker_->alive()) worker_->call("ray_close");
  } catch (...) {
    // The cluster is gone, or the process is.
  }
}

/// What Ray ends its own process with, when the cluster is gone for good, is no defect of a script.
Value RayWorkers::call(const char* method, Value args) {
  try {
    return worker_->call(method, std::move(args));
  } catch (const Error& error) {
    if (worker_->alive()) throw;
    throw SearchInterrupted("the Ray cluster is gone");
  }
}

Value RayWorkers::poll() {
  Value state = call("ray_poll", {});
  for (const std::string& note : state["notes"].strings()) log_warning(note);
  if (!state["gone"].is_null()) throw SearchInterrupted(state["gone"].text());
  return state;
}

void RayWorkers::start(const std::filesystem::path& network, const Tensor& setup, std::size_t samples,
                       const std::function<void()>& meanwhile) {
  call("ray_start", Value::Map{{"network", std::filesystem::absolute(network).string()},
                               {"setup", setup},
                               {"samples", static_cast<std::int64_t>(samples)}});
  for (;;) {
    const Value state = call("ray_poll", {});
    for (const std::string& note : state["notes"].strings()) log_warning(note);
    if (!state["gone"].is_null()) throw invalid_argument("[ray] expected a worker, got none: {}", state["gone"].text());
    if (state["ready"].integer() > 0) return;
    if (meanwhile) meanwhile();
  }
}

std::vector<Tensor> RayWorkers::run(std::span<const WorkItem> items, const std::function<void()>& meanwhile) {
  std::vector<Tensor> results(items.size());
  std::size_t missing = items.size();
  call("ray_submit", Value::Map{{"items", items_value(items)}});
  while (missing > 0) {
    const Value state = poll();
    for (const Value& each : state["done"].array()) {
      Tensor& result = results.at(static_cast<std::size_t>(each.array().at(0).integer()));
      missing -= result ? 0 : 1;
      result = each.array().at(1).tensor();
    }
    if (meanwhile) meanwhile();
  }
  return results;
}

void RayWorkers::expect(std::span<const WorkItem> items) {
  call("ray_expect", Value::Map{{"items", items_value(items)}});
}

}  // namespace ulpscope
