#!/bin/bash
# First start of a host: tools, then its task. Whatever fails, it reports and powers off, which terminates it.
set -euo pipefail
metadata() {
  local token
  token=$(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)
  curl -sf -H "X-aws-ec2-metadata-token: $token" "http://169.254.169.254/latest/meta-data/$1"
}
fail() {
  [ "$task" = session ] || aws lambda invoke --function-name "$MIGRATE_FUNCTION" --cli-binary-format raw-in-base64-out \
    --payload '{"action": "ended", "task": "'"$task"'", "exit_code": 70, "output": "The tools could not be installed."}' \
    /dev/stdout
  shutdown --poweroff now
}
task=$(metadata tags/instance/vectorforge-task || echo session)
minutes=@SESSION_MINUTES@
[ "$task" = session ] || minutes=@TASK_MINUTES@
shutdown --poweroff "+$minutes"
cat >/etc/profile.d/vectorforge.sh <<'END'
@EXPORTS@
END
. /etc/profile.d/vectorforge.sh
export HOME=/root
trap fail ERR
if [ -n "${AWS_USE_DUALSTACK_ENDPOINT:-}" ]; then # the agent's classic hosts have no IPv6 addresses
  echo '{"Agent": {"UseDualStackEndpoint": true}}' >/etc/amazon/ssm/amazon-ssm-agent.json
  systemctl restart amazon-ssm-agent
fi
dnf install --assumeyes --quiet "python$PYTHON_VERSION" postgresql17
aws s3 cp --only-show-errors '@TOOLS@' /tmp/tools.zip
"python$PYTHON_VERSION" -m zipfile --extract /tmp/tools.zip /var/task
trap - ERR
bash /var/task/host/start "$task"
