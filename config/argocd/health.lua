-- What Argo CD says about the health of an AgentTerminal. Lua 5.1, without libraries.
--
-- The conditions follow kstatus, so this only translates: Stalled is Degraded, Reconciling is Progressing, a Ready that
-- was judged for the present generation is Healthy. A suspended terminal is Suspended, which kstatus has no word for.

local function find(conditions, kind)
  for _, condition in ipairs(conditions) do
    if condition.type == kind then
      return condition
    end
  end
  return {}
end

local function answer(status, condition, otherwise)
  local message = condition.message
  if message == nil or message == "" then
    message = condition.reason or otherwise
  end
  return { status = status, message = message }
end

local status = obj.status or {}
local conditions = status.conditions or {}

-- A deleted terminal stays until its session is proven dead; `Terminated` says how far that got.
if obj.metadata.deletionTimestamp ~= nil then
  return answer("Progressing", find(conditions, "Terminated"), "Pending deletion")
end

if status.observedGeneration ~= obj.metadata.generation then
  return { status = "Progressing", message = "The operator has not seen this generation yet" }
end

local stalled = find(conditions, "Stalled")
if stalled.status == "True" then
  return answer("Degraded", stalled, "Stalled")
end

local reconciling = find(conditions, "Reconciling")
if reconciling.status == "True" then
  return answer("Progressing", reconciling, "Reconciling")
end

if reconciling.reason == "Suspended" then
  return answer("Suspended", reconciling, "Suspended")
end

local ready = find(conditions, "Ready")
if ready.status == "True" then
  return answer("Healthy", ready, "Ready")
end
return answer("Progressing", ready, "Waiting for the operator")
