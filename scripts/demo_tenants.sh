# shellcheck shell=sh disable=SC2154 # what it does not set, demo has set
# SPDX-License-Identifier: Apache-2.0
# The last act of scripts/demo, which includes it: two containers on one GPU.

tenants_lines=9    # half seconds of both at work
persistent_lines=6 # half seconds before a pause, in it, after it, and alone
unsettled_lines=2  # at the beginning of each, which are not judged; NVML looks back up to a second
tenants_s=60       # after which a load would be ended, whatever happens
tenant_points=8    # how close to its limit a tenant must come here
persistent_points=12 # what a kernel that runs must add to the GPU's utilisation

# start_tenant NAME PERCENT [OPTION...] of vgpu-load: its lines go to $work/NAME, its pid to $tenant.
start_tenant()
{
    name=$1 percent=$2
    shift 2
    : >"$work/$name"
    VGPU_BOARD_DIR=$work/boards timeout "$tenants_s" "$vgpu" run --cores "$percent" ${sim:+"$sim"} \
        --region "$work/$name-region" -- "$load" --calibration "$work/calibration" --seconds 0 "$@" \
        >"$work/$name" 2>>"$work/tenants.log" &
    tenant=$!
    jobs="$jobs $tenant"
}

# end_tenant PID: $tenants_failed says whether one did not end well.
end_tenant()
{
    kill "$1" 2>/dev/null || :
    wait "$1" || tenants_failed=1
    jobs=$(echo " $jobs " | sed "s/ $1 / /")
}

# await_lines NAME...: until each of them has said what it did in half a second.
await_lines()
{
    # shellcheck disable=SC2034 # patient reads it
    deadline=$(($(date +%s) + patience_s))
    for name in "$@"; do
        while ! grep -q work "$work/$name" && patient; do
            sleep 0.05
        done
    done
}

# percent_of NAME WORD UNIT: the number after WORD in its last line, in units of so many percent.
percent_of()
{
    tail -n 1 "$work/$1" | number_after "$2" |
        awk -v unit="$3" '{ percent = $1 * unit } END { printf "%.0f", percent }'
}

# pair SECONDS NAME PERCENT LIMIT NAME PERCENT LIMIT: two bars side by side, in 80 columns.
pair()
{
    awk -v bar="$bar" -v good="$good" -v bad="$bad" -v plain="$plain" '
        function drawn(name, percent, limit,    width, filled, mark, line, i) {
            width = 22; filled = int(percent * width / 100 + 0.5); mark = int(limit * width / 100 + 0.5)
            line = good
            for (i = 1; i <= width; i++) {
                if (i == mark + 1) line = line plain "|" bad
                line = line (i <= filled ? bar : " ")
            }
            if (mark == width) line = line plain "|"
            return sprintf("  %s %s%s %3.0f %%", name, line, plain, percent)
        }
        BEGIN { printf "  %4.1f s%s%s\n", ARGV[1], drawn(ARGV[2], ARGV[3], ARGV[4]),
            drawn(ARGV[5], ARGV[6], ARGV[7]) }' "$@"
}

# watch PHASE LINES: draws them, and notes the phase and both figures. On the left is what the first
# container did; of a persistent kernel, which tells nothing before it ends where it is simulated, what
# NVML says of the whole GPU.
watch()
{
    line=0
    while [ "$line" -lt "$2" ]; do
        sleep 0.5
        line=$((line + 1)) drawn=$((drawn + 1))
        two=$(percent_of two work 100)
        [ "$1" != alone ] || two=0
        if [ "$1" = both ]; then
            left=$(percent_of one work 100)
            set -- "$1" "$2" one "$left" 30
        else
            left=$(percent_of one NVML 1)
            set -- "$1" "$2" GPU "$left" 100
        fi
        pair "$(awk -v n="$drawn" 'BEGIN { print n / 2 }')" "$3" "$4" "$5" two "$two" 60
        echo "$1 $line $left $two" >>"$work/watched"
    done
}

# median_in PHASE left|two, in percent, after the phase's first lines. A busy machine spoils a line.
median_in()
{
    awk -v phase="$1" -v column="$2" -v unsettled="$unsettled_lines" \
        '$1 == phase && $2 > unsettled { print column == "two" ? $4 : $3 }' "$work/watched" |
        sort -n | awk '{ at[NR] = $1 } END { print NR ? at[int((NR + 1) / 2)] : 0 }'
}

# order COMMAND [OPTION...]: vgpu's, to the first container.
order()
{
    "$vgpu" "$@" --region "$work/one-region" >"$work/order" 2>&1 || tenants_failed=1
    echo "  vgpu $* --region ONE"
}

watch_pause()
{
    echo "  The first one's next program is one kernel that never ends. On the left is the whole GPU."
    start_tenant one 30 --shape persistent
    one=$tenant
    await_lines one
    watch before "$persistent_lines"
    order pause
    watch paused "$persistent_lines"
    order resume
    watch after "$persistent_lines"
    end_tenant "$two_pid"
    echo "  The second one has ended, and the first may have what is idle."
    order set --soft-cores 100
    watch alone "$persistent_lines"
    end_tenant "$one"
}

check_pause()
{
    for phase in before paused after; do
        found=$(median_in "$phase" two)
        check "the second one did $found % beside the kernel, limited to 60 % ($phase)" \
            within_points "$found" 60 "$tenant_points"
    done
    check "nothing else was on the GPU then" \
        within_points "$(median_in paused left)" "$(median_in paused two)" "$tenant_points"
    for phase in before after; do
        check "the kernel was there $phase the pause" \
            [ "$(median_in "$phase" left)" -ge $(($(median_in paused left) + persistent_points)) ]
    done
    check "by its soft limit it rose to $(median_in alone left) %" [ "$(median_in alone left)" -ge 80 ]
}

# Whether what runs can be taken off the GPU here.
can_stop() { inside -- "$vgpu" doctor 2>/dev/null | grep -q '^ok *gate.*works'; }

act_tenants()
{
    heading "5. Two containers on one GPU, limited to 30 % and to 60 %"
    if ! [ -x "$load" ]; then
        echo "  Left out: $load is missing."
        return
    fi
    mkdir "$work/boards" # by which they know of each other
    : >"$work/watched"
    drawn=0 tenants_failed=0
    outside timeout "$patience_s" "$load" --seconds 1 --save-calibration "$work/calibration" \
        >"$work/tenants.log" 2>&1 || indent "$work/tenants.log"
    : >"$work/tenants.log"
    start_tenant one 30
    one=$tenant
    start_tenant two 60
    two_pid=$tenant
    await_lines one two
    watch both "$tenants_lines"
    end_tenant "$one"
    if can_stop; then
        watch_pause
    else
        end_tenant "$two_pid"
    fi
    indent "$work/tenants.log"
    for name in one:left:30 two:two:60; do
        found=$(median_in both "$(echo "$name" | cut -d: -f2)")
        check "container ${name%%:*} did $found % beside the other, limited to ${name##*:} %" \
            within_points "$found" "${name##*:}" "$tenant_points"
    done
    if [ "$drawn" -gt "$tenants_lines" ]; then
        check_pause
    else
        echo "  A pause of a running kernel is left out: it cannot be stopped here; see vgpu doctor."
    fi
    check "both went on and ended well" [ "$tenants_failed" = 0 ]
}
