// Processes of a Ray cluster as those who do the work (https://docs.ray.io). Ray itself is driven by the Python worker,
// in a process of its own: it may end that process, and does not belong into the user's.
#pragma once

#include <memory>
#include <string>

#include "runners/work_queue.h"
#include "runners/worker.h"

namespace ulpscope {

struct RayOptions {
  std::string address;  ///< "auto" (the cluster that this machine belongs to), "HOST:PORT", or "local" (a new one).
  int workers = 0;      ///< At most; 0: as many as the cluster has cores for.
  bool gpus = false;    ///< Each worker needs one.
  /// What workers must have in common with this process.
  std::string version, processor;
};

class RayWorkers : public WorkQueue {
 public:
  /// Connects. Throws Error: kNotFound where Ray is not installed, kInvalidArgument for a cluster that does not answer
  /// within 10 s.
  explicit RayWorkers(const RayOptions& options);
  ~RayWorkers() override;
  RayWorkers(const RayWorkers&) = delete;
  RayWorkers& operator=(const RayWorkers&) = delete;

  void start(const std::filesystem::path& network, const Tensor& setup, std::size_t samples,
             const std::function<void()>& meanwhile) override;
  std::vector<Tensor> run(std::span<const WorkItem> items, const std::function<void()>& meanwhile) override;
  void expect(std::span<const WorkItem> items) override;

 private:
  Value call(const char* method, Value args);
  Value poll();

  std::shared_ptr<Worker> worker_;
};

}  // namespace ulpscope
